"""The commands as a user meets them: contract, exit codes, and one clear sentence for every bad input."""

import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import octavo
import onnx
import pytest
from conftest import BERT, SOURCE, batch, inputs_of, read_json
from onnx import TensorProto, helper, numpy_helper


def optimize(run, calib, *more):
    done = run("optimize", BERT, "-o", "out.onnx", "--calib", calib, "--json", "report.json", *more)
    assert done.returncode == 0, done.stderr
    return done


def sentence(done, *words):
    """One line on standard error that says all of these, and a failure."""
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], lines[0]


def test_optimize_report_follows_the_contract(run, calib, tmp_path):
    done = optimize(run, calib, "--report", "report.html", "--require-fused", "qkv,sdpa")
    report = read_json(tmp_path / "report.json")
    assert report["schema"] == 1
    assert report["attention"] == {"found": 2, "fused": 2}
    assert report["qkv"] == {"found": 2, "fused": 2}
    assert report["linear"]["quantized"] == report["linear"]["found"] >= 12
    assert {"kind", "nodes", "status", "rule", "reason"} <= set(report["candidates"][0])
    assert report["bytes"]["before"] == BERT.stat().st_size
    assert report["bytes"]["after"] == (tmp_path / "out.onnx").stat().st_size
    assert report["time_s"] > 0
    assert "attention 2/2 fused" in done.stdout
    assert [set(loss) for loss in report["losses"]] == [{"output", "sqnr_db", "sqnr_error", "cosine", "row_cosine", "row_cosine_error", "lowest_db", "highest_db", "kind", "exact"}]
    assert report["losses_of"] == {"samples": 6, "held_out": False, "output": report["losses"][0]["output"]} and "on 6 samples, which calibration saw: " in done.stdout
    assert report["losses"][0]["sqnr_db"] > 20 and not report["losses"][0]["exact"]
    assert f"'{report['losses'][0]['output']}' {report['losses'][0]['sqnr_db']:.1f} dB (+- {report['losses'][0]['sqnr_error']:.1g}; sample by sample " in done.stdout
    html = (tmp_path / "report.html").read_text()
    assert html.startswith("<!doctype html>") and "http" not in html.split("<body")[0]


def test_layers_are_named_as_the_table_and_keep_float_name_them(run, calib, tmp_path):
    done = optimize(run, calib, "--layers", "--report", "report.html")
    report = read_json(tmp_path / "report.json")
    worst = report["layers"][0]
    assert {"node", "kind", "output", "share", "sqnr_db", "cosine", "row_cosine", "exact"} == set(worst)
    assert worst["node"] in done.stdout.split("share of the loss")[1] and worst["node"] in (tmp_path / "report.html").read_text()
    attention = {c["nodes"][0] for c in report["candidates"] if c["kind"] == "attention"}
    assert attention <= {layer["node"] for layer in report["layers"]}
    before = report["losses"][0]["sqnr_db"]
    optimize(run, calib, "--keep-float", worst["node"], "--keep-float", "*Softmax")
    report = read_json(tmp_path / "report.json")
    assert report["losses"][0]["sqnr_db"] > before
    assert [c["reason"] for c in report["candidates"] if c["nodes"][0] == worst["node"] and c["kind"] == "linear"] in ([], ["stays float, as asked"])
    assert {c["rule"] for c in report["candidates"] if c["kind"] == "attention"} == {"sdpa"}
    sentence(run("optimize", BERT, "-o", "no.onnx", "--recipe", "dynamic", "--layers"), "--calib")


def test_min_db_is_kept_by_types_that_the_report_tells(run, calib, tmp_path):
    optimize(run, calib)
    want = read_json(tmp_path / "report.json")["losses"][0]["sqnr_db"] + 4
    done = optimize(run, calib, "--min-db", str(want), "--report", "report.html")
    report = read_json(tmp_path / "report.json")
    assert min(loss["sqnr_db"] for loss in report["losses"]) >= want
    types = [layer["type"] for layer in report["layers"]]
    assert set(types) <= {"quantized", "dynamic", "float"} and set(types) != {"quantized"}
    assert types.count("dynamic") == len(report["dynamic"]) and types.count("float") == len(report["keep_float"])
    assert f"for --min-db {want:g}: {types.count('dynamic')} of {len(types)} layers dynamic, {types.count('float')} in float" in done.stdout
    assert report["layers"][0]["type"] in (tmp_path / "report.html").read_text()
    sentence(run("optimize", BERT, "-o", "no.onnx", "--recipe", "dynamic", "--min-db", "20"), "--min-db", "--calib")
    sentence(run("optimize", BERT, "-o", "no.onnx", "--calib", calib, "--dynamic", "nobody"), "'nobody'")
    assert not (tmp_path / "no.onnx").exists()


def test_optimized_file_is_legal_onnx_and_reproducible(run, calib, tmp_path):
    optimize(run, calib, "--threads", "1")
    first = (tmp_path / "out.onnx").read_bytes()
    onnx.checker.check_model(onnx.load_from_string(first))
    optimize(run, calib, "--threads", "2")
    assert (tmp_path / "out.onnx").read_bytes() == first
    done = run("optimize", BERT, "-o", "again.onnx", "--calib", calib, "--pipeline", "out.onnx", "-q")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.onnx").read_bytes() == first


def test_run_bench_compare_explain_inspect_print(run, calib, tmp_path):
    optimize(run, calib)
    done = run("run", "out.onnx", "--inputs", calib / "0.npz", "--outputs", "y.npz", "--trace", "trace.json", "--threads", "1")
    assert done.returncode == 0, done.stderr
    outputs = np.load(tmp_path / "y.npz")
    assert all(np.isfinite(outputs[k]).all() and np.abs(outputs[k]).max() > 0 for k in outputs)
    trace = read_json(tmp_path / "trace.json")["traceEvents"]
    assert any("sdpa_int8" in e["args"]["kernel"] and e["args"]["origin"] for e in trace)

    done = run("compare", BERT, "out.onnx", "--data", calib, "--json")
    assert done.returncode == 0, done.stderr
    for output in json.loads(done.stdout)["outputs"]:
        assert output["sqnr_db"] > 15  # two layers of random weights lose about 30 dB
        assert not output["exact"]

    done = run("bench", "out.onnx", "--inputs", calib / "0.npz", "--threads", "1,2", "--seconds", "0.1", "--json")
    assert done.returncode == 0, done.stderr
    assert [r["threads"] for r in json.loads(done.stdout)["results"]] == [1, 2]

    done = run("explain", BERT, "--json")
    assert {c["status"] for c in json.loads(done.stdout)["candidates"] if c["kind"] == "attention"} == {"fused"}
    done = run("inspect", "out.onnx", "--json")
    cores = json.loads(done.stdout)["attention"]
    assert len(cores) == 2 and all(core["form"]["quantized"] and core["form"]["heads"] == 2 for core in cores), cores
    assert json.loads(done.stdout)["quantization"]["state"] == "int8, fused by octavo"
    assert json.loads(done.stdout)["ops"]["octavo::QuantizedSdpa"] == 2
    assert "QuantizedSdpa" in run("print", "out.onnx").stdout


def test_every_json_key_is_documented(run, calib, tmp_path):
    page = (SOURCE / "cli" / "JSON.md").read_text()
    optimize(run, calib)
    assert [key for key in read_json(tmp_path / "report.json") if f"`{key}`" not in page and key != "schema"] == []
    done = [run("explain", BERT, "--json"), run("inspect", BERT, "--json"), run("inspect", "--cpu", "--json"),
            run("bench", "out.onnx", "--inputs", calib / "0.npz", "--seconds", "0.1", "--json"),
            run("compare", BERT, "out.onnx", "--data", calib, "--json")]
    for printed in done:
        answer = json.loads(printed.stdout)
        assert answer["schema"] == 1
        assert [key for key in answer if f"`{key}`" not in page and key != "schema"] == []
    assert "float" == json.loads(done[1].stdout)["quantization"]["state"]
    assert {core["form"]["mask"] for core in json.loads(done[1].stdout)["attention"]} != {"none"}


def test_inspect_cpu_names_what_was_found_and_every_kernel(run, monkeypatch):
    cpu = json.loads(run("inspect", "--cpu", "--json").stdout)
    assert cpu["used"] == cpu["supported"][-1] and cpu["used"] in run("inspect", "--cpu").stdout
    assert cpu["found"]["avx2"] == ("avx2" in cpu["supported"])
    assert cpu["kernels"]["int8 linear, 1 to 8 rows"].startswith("linear_int8_")
    assert cpu["kernels"]["int8 attention"].startswith("sdpa_int8_")
    assert not cpu["found"]["bf16_pairs"] or cpu["found"]["avx512_bf16"]
    pairs = cpu["found"]["bf16_pairs"] and cpu["found"]["four_pipes"] and cpu["used"] == "avx512vnni"
    assert (cpu["kernels"]["fp8 linear"] == "linear_fp8_avx512bf16") == pairs
    assert (cpu["kernels"]["fp8 attention"] == "sdpa_fp8_avx512bf16") == pairs
    monkeypatch.setenv("OCTAVO_ARCH", "scalar")
    assert json.loads(run("inspect", "--cpu", "--json").stdout)["kernels"]["float attention"] == "sdpa_f32_scalar"
    monkeypatch.setenv("OCTAVO_ARCH", "mmx")
    assert "names no instruction set" in run("inspect", "--cpu").stderr


def test_calibrate_shards_merge_to_the_whole(run, calib, tmp_path):
    whole = run("calibrate", BERT, "--data", calib, "-o", "whole.calib")
    assert whole.returncode == 0, whole.stderr
    for i in range(3):
        shard = run("calibrate", BERT, "--data", calib / f"{i}.npz", "-o", f"{i}.calib")
        assert shard.returncode == 0, shard.stderr
    merged = run("calibrate", "--merge", "2.calib", "0.calib", "1.calib", "-o", "merged.calib")
    assert merged.returncode == 0, merged.stderr
    assert (tmp_path / "merged.calib").read_bytes() == (tmp_path / "whole.calib").read_bytes()
    optimize(run, calib, "--no-fit", "--held-out", "0")
    done = run("optimize", BERT, "-o", "from_ranges.onnx", "--calib", "merged.calib")
    assert done.returncode == 0 and "a .calib file holds ranges" in done.stderr, done.stderr
    assert (tmp_path / "from_ranges.onnx").read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_random_calibration_says_so(run, tmp_path):
    done = run("optimize", BERT, "-o", "out.onnx", "--calib", "random:2", "--json", "r.json")
    assert done.returncode == 0, done.stderr
    assert "note: the calibration data is random" in done.stderr
    report = read_json(tmp_path / "r.json")
    assert report["data"]["random"] is True and "random" in report["notes"][0]


def test_a_quantized_model_says_what_it_makes_of_a_recipe(run, tmp_path):
    path = SOURCE / "tests/data/models/sdpa_plain.ts17.ort-qdq-u8s8.onnx"
    for recipe, sentence, fused in (("int8", "fuses it with the scales it has", 1), ("quantized", "", 1),
                                    ("dynamic", "recipe 'quantized' fuses it", 0), ("float", "recipe 'quantized' fuses it", 0)):
        done = run("optimize", path, "-o", "out.onnx", "--recipe", recipe, "--json", "r.json")
        report = read_json(tmp_path / "r.json")
        assert report["attention"]["fused"] == fused
        assert ("quantized already" in done.stderr) == bool(sentence) and sentence in done.stderr
        assert [sentence in note for note in report["notes"]] == [True] * bool(sentence)
    assert "recipe 'quantized' fuses them" in run("optimize", path, "-o", "out.onnx", "--recipe", "dynamic").stdout


def test_what_runs_is_fused_unless_asked_otherwise(run):
    path = SOURCE / "tests/data/models/sdpa_plain.ts17.ort-qdq-u8s8.onnx"
    for flags, kernel in (([], True), (["--as-is"], False)):
        done = run("bench", path, "--seconds", "0.1", "--threads", "1", *flags)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert ("sdpa_int8" in done.stdout) == kernel, done.stdout


def test_required_fusion_that_is_missing_fails_with_the_reason(run, tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "relu.onnx")
    done = run("optimize", "relu.onnx", "-o", "out.onnx", "--recipe", "float", "--require-fused", "sdpa")
    assert done.returncode == 3
    assert "sdpa" in done.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_a_reduced_range_is_recorded_and_replayed(run, tmp_path):
    weights = np.random.default_rng(0).standard_normal((64, 32), dtype=np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 32])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y],
                              [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "float.onnx")
    common = ("optimize", "float.onnx", "--recipe", "dynamic", "-q", "-o")
    for name, more in {"8": (), "7": ("--reduce-range",), "again": ("--pipeline", "7.onnx")}.items():
        assert run(*common, f"{name}.onnx", *more).returncode == 0
    files = {name: (tmp_path / f"{name}.onnx").read_bytes() for name in ("8", "7", "again")}
    assert files["7"] == files["again"] != files["8"]
    sentence(run("optimize", "float.onnx", "-o", "no.onnx", "--recipe", "float", "--reduce-range"), "int8 and dynamic")
    sentence(run("optimize", "float.onnx", "-o", "no.onnx", "--pipeline", "7.onnx", "--reduce-range"), "'reduce_range'")
    assert not (tmp_path / "no.onnx").exists()


def test_linears_of_fp16_are_quantized_or_left_with_the_reason(run, tmp_path):
    fp16 = SOURCE / "tests" / "data" / "models" / "b_fp16.dyn18.onnx"
    model = onnx.load(fp16)
    model.graph.node.append(helper.make_node("Strange", [model.graph.node[-1].input[0]], ["strange"], domain="com.example"))
    model.graph.output.append(helper.make_tensor_value_info("strange", TensorProto.FLOAT16, None))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    onnx.save(model, tmp_path / "strange.onnx")
    found = {}
    for name in (fp16, "strange.onnx"):
        assert run("optimize", name, "-o", "q.onnx", "--recipe", "dynamic", "-q", "--json", "r.json").returncode == 0
        found[name] = [c for c in read_json(tmp_path / "r.json")["candidates"] if c["kind"] == "linear"]
    assert found[fp16] and all(c["status"] == "quantized" for c in found[fp16])
    assert len(found["strange.onnx"]) == len(found[fp16])
    assert all("its weights are f16" in c["reason"] and "fp32" in c["reason"] for c in found["strange.onnx"])


def test_shapes_that_the_nodes_contradict_are_told_and_mended(run, tmp_path):
    model = onnx.load(BERT)
    declared = model.graph.output[0].type.tensor_type.shape
    declared.dim[len(declared.dim) - 1].Clear()
    declared.dim[len(declared.dim) - 1].dim_value = 7
    onnx.save(model, tmp_path / "edited.onnx")
    names = [i.name for i in model.graph.input]
    np.savez(tmp_path / "x.npz", **{name: array for name, array in batch(1).items() if name in names})
    done = run("run", "edited.onnx", "--inputs", "x.npz")
    assert done.returncode == 0, done.stderr
    assert "note: edited.onnx: " in done.stderr and "octavo goes by the nodes" in done.stderr
    assert done.stdout == run("run", BERT, "--inputs", "x.npz").stdout


def test_what_stays_float_is_told(run, calib, tmp_path):
    model = onnx.load(BERT)
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 64, 8, 8])
    model.graph.input.append(image)
    weights = np.random.default_rng(0).standard_normal((64, 32, 3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "kernel"))
    model.graph.node.append(helper.make_node("Conv", ["image", "kernel"], ["map"], name="conv", group=2))
    model.graph.output.append(helper.make_tensor_value_info("map", TensorProto.FLOAT, [1, 64, 6, 6]))
    onnx.save(model, tmp_path / "conv.onnx")
    done = run("optimize", "conv.onnx", "-o", "q.onnx", "--recipe", "dynamic", "--json", "r.json")
    assert "in float: 1 Conv (73.7 KB of" in done.stdout, done.stdout
    assert read_json(tmp_path / "r.json")["in_float"][0] == {"op": "Conv", "weights": 1, "bytes": weights.nbytes}


def test_pipes_and_links_are_written_through(run, tmp_path):
    (tmp_path / "real.json").write_text("old")
    os.symlink("real.json", tmp_path / "link.json")
    os.mkfifo(tmp_path / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_text()))
    reader.start()
    for out in ("link.json", "pipe"):
        assert run("optimize", str(BERT), "-o", "f.onnx", "--recipe", "float", "-q", "--json", out).returncode == 0
    reader.join(timeout=20)
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "pipe").is_fifo()
    assert json.loads((tmp_path / "real.json").read_text())["schema"] == 1 and json.loads(got[0])["schema"] == 1


def test_files_of_one_call_are_kept_apart(run, tmp_path):
    sentence(run("optimize", str(BERT), "-o", "same", "--recipe", "float", "--json", "same"), "each its own file")
    assert not (tmp_path / "same").exists()
    (tmp_path / "folder").mkdir()
    sentence(run("optimize", str(BERT), "-o", "f.onnx", "--recipe", "float", "--report", "folder"), "it is a folder")
    assert not (tmp_path / "f.onnx").exists()
    assert run("optimize", str(BERT), "-o", "f.onnx", "--print-after", "nosuch").returncode == 2
    session = octavo.Session(BERT, threads=1)
    np.savez(tmp_path / "x.npz", **inputs_of(session, batch(0)))
    before = (tmp_path / "x.npz").read_bytes()
    sentence(run("run", str(BERT), "--inputs", "x.npz", "--outputs", "x.npz"), "the inputs", "each its own file")
    sentence(run("run", str(BERT), "--inputs", "x.npz", "--outputs", "y.npz", "--trace", "y.npz"), "each its own file")
    assert (tmp_path / "x.npz").read_bytes() == before and not (tmp_path / "y.npz").exists()


def test_results_that_cannot_be_printed_are_a_failure(octavo_program):
    for arguments in (["inspect", str(BERT), "--json"], ["--help"], ["run", "--help"], ["--version"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([octavo_program, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "standard output" in done.stderr, arguments


# --- bad input: one sentence, a failure, nothing written -----------------------------------------------------------


def no_output(tmp_path):
    assert not (tmp_path / "out.onnx").exists()
    assert not list(tmp_path.glob("*.tmp*"))


def test_truncated_model(run, calib, tmp_path):
    (tmp_path / "cut.onnx").write_bytes(BERT.read_bytes()[:20000])
    sentence(run("optimize", "cut.onnx", "-o", "out.onnx", "--calib", calib), "cut.onnx")
    no_output(tmp_path)


def test_missing_model(run, tmp_path):
    sentence(run("optimize", "none.onnx", "-o", "out.onnx", "--recipe", "float"), "none.onnx")
    no_output(tmp_path)


def test_cycle(run, tmp_path):
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "second")]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)])
    (tmp_path / "cycle.onnx").write_bytes(model.SerializeToString())
    sentence(run("optimize", "cycle.onnx", "-o", "out.onnx", "--recipe", "float"), "cycle")
    no_output(tmp_path)


def external(tmp_path, location):
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.zeros(16, np.float32))
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    (tmp_path / "external.onnx").write_bytes(model.SerializeToString())


@pytest.mark.parametrize("location", ["absent.bin", "../outside.bin", "/etc/hostname"])
def test_external_data(run, tmp_path, location):
    (tmp_path.parent / "outside.bin").write_bytes(bytes(64))
    external(tmp_path, location)
    sentence(run("optimize", "external.onnx", "-o", "out.onnx", "--recipe", "float"), location)
    no_output(tmp_path)


def test_wrong_dtype_missing_array_and_nan_in_the_data(run, calib, tmp_path):
    names = list(np.load(calib / "0.npz"))
    good = dict(np.load(calib / "0.npz"))
    np.savez(tmp_path / "float.npz", **{**good, names[0]: good[names[0]] + 0.5})
    sentence(run("run", BERT, "--inputs", "float.npz"), names[0], "float.npz")
    np.savez(tmp_path / "few.npz", **{k: v for k, v in good.items() if k != names[0]})
    sentence(run("run", BERT, "--inputs", "few.npz"), names[0])
    (tmp_path / "cut.npz").write_bytes((calib / "0.npz").read_bytes()[:100])
    sentence(run("run", BERT, "--inputs", "cut.npz"), "cut.npz")


def test_nan_in_calibration_data(run, tmp_path):
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.eye(4, dtype=np.float32).ravel())
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 4])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "linear.onnx")
    np.savez(tmp_path / "nan.npz", x=np.array([[1, np.nan, 0, 0]], np.float32))
    sentence(run("optimize", "linear.onnx", "-o", "out.onnx", "--calib", "nan.npz"), "nan.npz", "NaN")
    no_output(tmp_path)


def test_unwritable_output(run, calib, tmp_path):
    sentence(run("optimize", BERT, "-o", "no/such/folder/out.onnx", "--calib", calib), "no/such/folder")
    (tmp_path / "folder.onnx").mkdir()
    sentence(run("optimize", BERT, "-o", "folder.onnx", "--calib", calib), "folder.onnx")


def test_wrong_usage(run):
    done = run("optimize", BERT)
    assert done.returncode == 2
    assert "--output" in done.stderr
    assert run("--help").returncode == 0 and "Exit codes" in run("--help").stdout
    for command in ("optimize", "run", "bench", "compare", "calibrate", "explain", "inspect", "print"):
        assert "Example" in run(command, "--help").stdout


@pytest.mark.parametrize("recipe", ["int8", "fp8"])
def test_inspect_names_the_kind_of_codes(run, calib, recipe):
    assert run("optimize", BERT, "-o", "out.onnx", "--recipe", recipe, "--calib", calib, "-q").returncode == 0
    found = json.loads(run("inspect", "out.onnx", "--json").stdout)["quantization"]
    assert found["state"] == f"{recipe}, fused by octavo"
    assert found[f"fused_{recipe}"] > 0 and found["fused_fp8" if recipe == "int8" else "fused_int8"] == 0


def test_an_error_at_a_node_without_a_name_says_which(run, tmp_path):
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    shape = numpy_helper.from_array(np.array([5, 7], np.int64), "shape")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", "m"]) for n in "xy")
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y], [shape]), ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 3), np.float32))
    done = run("run", "m.onnx", "--inputs", "in.npz", "--outputs", "out.npz")
    assert done.returncode == 1 and "'Reshape(y)'" in done.stderr


@pytest.fixture
def long_run(tmp_path):
    """A model whose one run takes about ten seconds and is ready to run in one, and its inputs."""
    nodes = [helper.make_node("MatMul", [f"v{i}", "w"], [f"v{i + 1}"], f"m{i}") for i in range(200)]
    w = numpy_helper.from_array(np.zeros((512, 512), np.float32), "w")
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [10240, 512]) for n in ("v0", "v200"))
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [y], [w]), ir_version=8), tmp_path / "long.onnx")
    np.savez(tmp_path / "in.npz", v0=np.zeros((10240, 512), np.float32))
    return tmp_path


def test_a_run_is_interrupted_on_its_way(octavo_program, long_run):
    process = subprocess.Popen([octavo_program, "run", "long.onnx", "--inputs", "in.npz", "--outputs", "out.npz", "--threads", "1"],
                               cwd=long_run, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(2.5, process.send_signal, [signal.SIGINT])
    timer.start()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130 and "interrupted before node 'm" in stderr
    assert not (long_run / "out.npz").exists()


def test_python_is_interrupted_on_its_way(long_run):
    code = """
import numpy as np, octavo, sys
session = octavo.Session("long.onnx", threads=1)
print("ready", flush=True)
try:
    session.run({"v0": np.zeros((10240, 512), np.float32)})
except KeyboardInterrupt as interrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], cwd=long_run, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    timer = threading.Timer(1, process.send_signal, [signal.SIGINT])
    timer.start()
    out, _ = process.communicate(timeout=120)
    assert out == "interrupted\n" and process.returncode == 0


def test_optimizing_in_python_is_interrupted_between_two_batches(long_run):
    code = """
import numpy as np, octavo
def batches():
    while True:
        print("batch", flush=True)
        yield {"v0": np.ones((10240, 512), np.float32)}
for work in (octavo.calibrate, lambda model, data: octavo.optimize(model, calibration=data)):
    try:
        work("short.onnx", batches())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
    model = onnx.load(long_run / "long.onnx")
    del model.graph.node[3:]
    model.graph.output[0].name = "v3"
    onnx.save(model, long_run / "short.onnx")
    process = subprocess.Popen([sys.executable, "-c", code], cwd=long_run, stdout=subprocess.PIPE, text=True)
    for _ in range(2):
        assert [process.stdout.readline() for _ in range(3)] == ["batch\n"] * 3
        process.send_signal(signal.SIGINT)
        while (line := process.stdout.readline()) == "batch\n":
            pass
        assert line == "interrupted\n"
    assert process.wait(timeout=60) == 0


def test_a_process_may_end_while_a_daemon_thread_runs_a_model(long_run):
    code = """
import numpy as np, octavo, threading, time
session = octavo.Session("long.onnx", threads=1)
x = {"v0": np.zeros((10240, 512), np.float32)}
threading.Thread(target=session.run, args=(x,), daemon=True).start()
short = octavo.Session("short.onnx", threads=1)
threading.Thread(target=lambda: [short.run(x) for _ in range(10**9)], daemon=True).start()
time.sleep(0.5)
"""
    model = onnx.load(long_run / "long.onnx")
    del model.graph.node[2:]
    model.graph.output[0].name = "v2"
    onnx.save(model, long_run / "short.onnx")
    done = subprocess.run([sys.executable, "-c", code], cwd=long_run, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
