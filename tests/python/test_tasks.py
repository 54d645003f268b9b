"""./dev bench tasks: how surely a figure is known, which pairs count, and that parts of a task have no item in common."""

import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "benchmarks/tasks"), str(ROOT / "benchmarks")]

import answers  # noqa: E402
import order  # noqa: E402
import tasks  # noqa: E402


class Mean(tasks.Task):
    more = True

    def score(self, answers, _truth):
        return float(np.mean(answers))


def test_the_standard_error_of_a_mean_is_that_of_the_book():
    values = np.random.default_rng(3).normal(size=answers.PARTS)
    told = answers.spread(Mean(), lambda ours: float(np.mean(ours)), list(values))
    assert told == pytest.approx(np.std(values, ddof=1) / np.sqrt(len(values)))


def test_a_share_is_lost_of_what_there_is():
    task = Mean()
    assert answers.lost(task, 0.9, 1.0) == pytest.approx(0.1) and answers.lost(task, -0.02, 0.0) == 0.02
    task.more = False
    assert answers.lost(task, 11, 10) == pytest.approx(0.1)


def test_pairs_count_that_the_task_tells_apart():
    rows = [{"variant": v, "lost": lost, "loss": loss, "apart": dict.fromkeys("abc", 0.01)}
            for v, lost, loss in (("a", 0.0, 1.0), ("b", 0.015, 0.5), ("c", 0.1, 2.0))]
    found = order.agreement(rows, "loss")  # a and b are within two errors, whatever their losses say
    assert found == {"pairs": 2, "against": [], "tau": 1}
    rows[2]["loss"] = 0.7
    assert order.agreement(rows, "loss") == {"pairs": 2, "against": [("a", "c")], "tau": 0}
    assert order.agreement(rows[:2], "loss")["tau"] is None


def test_the_loss_told_is_of_classes_where_there_are_some():
    cache, logits = {"row_cosine": 0.9, "sqnr_db": 10.0}, {"row_cosine": 0.99, "sqnr_db": 20.0, "kl": 0.02, "kl_error": 0.001}
    assert order.told({"losses": [cache, logits]}) == ("kl", 0.02, 0.001, 10.0)
    kind, figure, error, db = order.told({"losses": [cache, {"row_cosine": 0.99, "sqnr_db": 20.0, "row_cosine_error": 0.1}]})
    assert kind == "1 - cosine" and figure == pytest.approx(0.1) and error == 0 and db == 10


def test_text_tells_how_often_the_first_choice_is_that_of_floats():
    task = tasks.Text.__new__(tasks.Text)
    task.WIDTH = 4
    item = np.array([[0, 1, 2, 0]])
    floats, other = np.eye(3)[[[0, 1, 2, 0]]], np.eye(3)[[[0, 1, 0, 0]]]
    answers = [[task.answer({"model": lambda _, logits=logits: {"logits": logits[:, :3]}}, item)] for logits in (floats, other)]
    assert task.others(answers[0], answers[0]) == {"same first choice": 1}
    assert task.others(answers[1], answers[0]) == {"same first choice": pytest.approx(2 / 3)}
    assert task.score(answers[0], answers[0]) == pytest.approx(np.exp(-np.log(1 / (np.e + 2))))


def test_parts_of_a_task_share_no_item_and_are_all_of_it():
    task = tasks.Sentences.__new__(tasks.Sentences)
    inputs = {"input_ids": np.arange(12).reshape(6, 2)}
    task.items = [([("query", 0), ("doc", 1), ("doc", 0)], {"input_ids": inputs["input_ids"][:3]}),
                  ([("query", 1), ("query", 2), ("doc", 2)], {"input_ids": inputs["input_ids"][3:]})]
    halves = [task.part(n, 2) for n in range(2)]
    positions = [{p for at, _ in half for p in at} for half in halves]
    assert positions == [{("query", 0), ("doc", 0), ("query", 2), ("doc", 2)}, {("query", 1), ("doc", 1)}]
    for half in halves:
        for at, given in half:
            for position, row in zip(at, given["input_ids"]):
                assert any(position == p and np.array_equal(row, r) for ps, i in task.items for p, r in zip(ps, i["input_ids"]))
    plain = Mean()
    plain.items = list(range(7))
    assert [plain.part(n, 3) for n in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert plain.without([0, 1, 2, 3, 4], 1, 3) == [0, 2, 3]
