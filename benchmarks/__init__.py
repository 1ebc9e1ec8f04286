"""Speed of this package beside others on one machine: `make bench`, see README.md here."""
