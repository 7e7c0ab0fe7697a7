"""The packages of the wheel; the shipped configurations become a part of orchestrator."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["orchestrator*", "jobs*"]), "orchestrator.configs"],
    package_dir={"orchestrator.configs": "configs"},
)
