"""The channel (moments, g_out and its derivative), the choice of a posterior, and ``compile``.  sympy ends here."""
