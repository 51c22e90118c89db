sbplan search "$DATA/indivisible.json" laptop-4 -o plan.json; rc=$?; ls; exit $rc
