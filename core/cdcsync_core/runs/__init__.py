"""What a run is given and reports, and what of it `status` shows."""
