sbplan calibrate job.log
