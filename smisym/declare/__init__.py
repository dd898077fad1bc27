"""What is studied, as frozen values that compute nothing: networks, models by expressions, their files."""
