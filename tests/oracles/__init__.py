"""Independent implementations: nothing here uses a formula or an integrator of the package."""
