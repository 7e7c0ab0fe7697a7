"""Where the time of a step went: by operation, by module, by phase of the loop; and the MFU."""
