"""What a program does to its own host: processes, priorities, CPU groups, the page cache."""
