"""Repeats combined into configurations."""

from jobs.flags import Flag, FlagKind
from orchestrator.analysis.configuration import memory_column
from orchestrator.storage.tables.trial_table import table_of_records
from orchestrator.units import MIB
from tests.support.configurations import measured
from tests.support.records import COLUMNS, H200, make_record

HOST_BOUND = Flag(FlagKind.HOST_BOUND, 0.9)
UNSTABLE = Flag(FlagKind.UNSTABLE, 0.02)


def test_configurations_combine_repeats_to_median_speed_and_largest_memory():
    figures = [(90, 1), (100, 3), (500, 2)]
    records = [
        make_record(repeat=repeat, speed=speed, memory_mib=memory)
        for repeat, (speed, memory) in enumerate(figures)
    ]
    (combined,) = measured(records)
    assert combined.samples_per_second == 100
    assert combined.memory_bytes == 603 * MIB
    assert len(combined.trial_ids) == 3


def test_configurations_combine_flags_and_average_their_errors():
    repeats = [([HOST_BOUND], 0.01), ([UNSTABLE], 0.03), ([], 0.02)]
    records = [
        make_record(repeat=repeat, flags=flags, measurements={"samples_per_second_ci95": ci95})
        for repeat, (flags, ci95) in enumerate(repeats)
    ]
    (combined,) = measured(records)
    assert combined.flags == (HOST_BOUND, UNSTABLE)
    own = [(ci95 / 1.96) ** 2 for _, ci95 in repeats]
    assert combined.speed_error.standard_error > (sum(own) / 9) ** 0.5


def test_configurations_of_other_versions_are_another_environment():
    records = [make_record(), make_record(environment={**H200, "torch": "2.12.0"})]
    assert len({own.environment_id for own in measured(records)}) == 2


def test_memory_column_is_the_devices_only_if_every_row_has_it():
    records = [make_record(micro_batch=1), make_record(micro_batch=2, gpu=False)]
    rows = table_of_records(records, declared=COLUMNS).rows
    assert memory_column(rows[:1]) == "device_peak_bytes"
    assert memory_column(rows) == "peak_allocated_bytes"
    assert memory_column([]) == "device_peak_bytes"
