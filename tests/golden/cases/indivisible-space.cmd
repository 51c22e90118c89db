sbplan search "$DATA/indivisible.json" laptop-4 --space autoddl -o plan.json; rc=$?; ls; exit $rc
