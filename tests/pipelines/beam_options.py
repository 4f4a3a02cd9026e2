"""Options of Beam that tests share."""

#: Two processes beside the one that starts the job.
PROCESSES = ["--direct_running_mode", "multi_processing", "--direct_num_workers", "2"]
