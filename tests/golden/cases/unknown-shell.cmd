sbplan completion tcsh; echo $?
sbplan completion; echo $?
sbplan manual page
