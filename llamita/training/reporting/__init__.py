"""`report.html`: what one run did, or several beside each other, read from what they left."""
