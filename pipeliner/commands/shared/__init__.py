"""What commands share: console, usage errors, workloads from flags, files of users."""
