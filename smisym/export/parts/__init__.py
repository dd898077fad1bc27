"""What every module that is written has in common, as code that is checked and tested like the rest.

:mod:`smisym.export.assembling` puts these files together without their imports; :mod:`smisym.export.parts.given`
stands for what is written for one architecture.
"""
