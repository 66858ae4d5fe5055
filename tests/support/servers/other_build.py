"""Runs a service as a build would that publishes and needs another form of Pods: `python -P other_build.py FORM MODULE`."""

import runpy
import sys

from common.bus import forms
from common.bus.forms import Form

if __name__ == "__main__":
    _, form, module = sys.argv
    major, minor = form.split(".")
    forms.FORMS["Pod"] = Form(int(major), int(minor))
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
