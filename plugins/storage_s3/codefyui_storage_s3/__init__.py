"""The storage backend ``s3``: a bucket holds the files of runs; workers fetch from it and upload to it themselves."""
