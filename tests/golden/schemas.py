#!/usr/bin/env python3
"""Files that are shipped and files that sbplan writes are as configs/schema/ says, and files that
are altered are not. Usage: schemas.py SBPLAN ROOT
"""

import copy
import glob
import json
import os
import re
import subprocess
import sys
import tempfile

program, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
os.environ["SBPLAN_CONFIGS"] = root + "/configs"
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
    "null": type(None),
}
# Keys whose values sbplan does not read.
FREE = {"notes", "source", "search"}
# Said for people.
SILENT = {"$schema", "$defs", "$id", "title", "description", "default", "examples", "$comment"}


class Checker:
    """As much of JSON Schema as the schemas use; a keyword beyond is an error of the test."""

    def __init__(self, schema):
        self.schema = schema

    def check(self, value, schema=None, at=""):
        """Complaints about a value."""
        schema = self.schema if schema is None else schema
        if isinstance(schema, bool):
            return [] if schema else [f"{at}: nothing is legal"]
        found = []
        for key, argument in schema.items():
            if key not in SILENT:
                rule = getattr(self, "on_" + key.lstrip("$"), None)
                if rule is None:
                    raise SystemExit(f"schemas.py does not know the keyword {key}")
                found += rule(value, argument, schema, at)
        return found

    def on_ref(self, value, ref, schema, at):
        file, _, path = ref.partition("#")
        there = Checker(load(f"{root}/configs/schema/{file}")) if file else self
        target = there.schema
        for part in path.split("/"):
            target = target[part] if part else target
        return there.check(value, target, at)

    def on_type(self, value, names, schema, at):
        names = names if isinstance(names, list) else [names]
        for name in names:
            whole = name == "integer" and isinstance(value, float) and value.is_integer()
            is_bool = isinstance(value, bool) and name != "boolean"
            if (isinstance(value, TYPES[name]) or whole) and not is_bool:
                return []
        return [f"{at}: {value!r:.40} is no {names}"]

    def on_const(self, value, wanted, schema, at):
        return [] if value == wanted else [f"{at}: {value!r:.40} is not {wanted!r}"]

    def on_enum(self, value, names, schema, at):
        return [] if value in names else [f"{at}: {value!r:.40} is none of {names}"]

    def on_properties(self, value, members, schema, at):
        return [
            complaint
            for key, member in members.items()
            if isinstance(value, dict) and key in value
            for complaint in self.check(value[key], member, f"{at}.{key}")
        ]

    def on_patternProperties(self, value, members, schema, at):
        return [
            complaint
            for pattern, member in members.items()
            if isinstance(value, dict)
            for key in value
            if re.search(pattern, key)
            for complaint in self.check(value[key], member, f"{at}.{key}")
        ]

    def on_additionalProperties(self, value, rest, schema, at):
        known = schema.get("properties", {})
        patterns = schema.get("patternProperties", {})
        return [
            complaint
            for key in (value if isinstance(value, dict) else {})
            if key not in known and not any(re.search(p, key) for p in patterns)
            for complaint in self.check(value[key], rest, f"{at}.{key}")
        ]

    def on_required(self, value, keys, schema, at):
        missing = [key for key in keys if isinstance(value, dict) and key not in value]
        return [f"{at}: {key} is missing" for key in missing]

    def on_items(self, value, item, schema, at):
        begin = len(schema.get("prefixItems", []))
        return [
            complaint
            for place, element in enumerate(value if isinstance(value, list) else [])
            if place >= begin
            for complaint in self.check(element, item, f"{at}[{place}]")
        ]

    def on_prefixItems(self, value, items, schema, at):
        return [
            complaint
            for place, (element, item) in enumerate(zip(value, items))
            for complaint in self.check(element, item, f"{at}[{place}]")
        ]

    def on_oneOf(self, value, schemas, schema, at):
        good = [one for one in schemas if not self.check(value, one, at)]
        return [] if len(good) == 1 else [f"{at}: {len(good)} of oneOf hold"]

    def on_anyOf(self, value, schemas, schema, at):
        return [] if any(not self.check(value, one, at) for one in schemas) else [f"{at}: anyOf"]

    def on_not(self, value, other, schema, at):
        return [f"{at}: not"] if not self.check(value, other, at) else []

    @staticmethod
    def is_number(value):
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def on_minimum(self, value, least, schema, at):
        return [f"{at}: {value} < {least}"] if self.is_number(value) and value < least else []

    def on_maximum(self, value, most, schema, at):
        return [f"{at}: {value} > {most}"] if self.is_number(value) and value > most else []

    def on_exclusiveMinimum(self, value, least, schema, at):
        return [f"{at}: {value} <= {least}"] if self.is_number(value) and value <= least else []

    def on_exclusiveMaximum(self, value, most, schema, at):
        return [f"{at}: {value} >= {most}"] if self.is_number(value) and value >= most else []

    def on_minItems(self, value, least, schema, at):
        return [f"{at}: few items"] if isinstance(value, list) and len(value) < least else []

    def on_maxItems(self, value, most, schema, at):
        return [f"{at}: many items"] if isinstance(value, list) and len(value) > most else []

    def on_uniqueItems(self, value, wanted, schema, at):
        words = [json.dumps(item) for item in value] if isinstance(value, list) else []
        return [f"{at}: an item twice"] if wanted and len(set(words)) < len(words) else []

    def on_minProperties(self, value, least, schema, at):
        return [f"{at}: few members"] if isinstance(value, dict) and len(value) < least else []

    def on_minLength(self, value, least, schema, at):
        return [f"{at}: short"] if isinstance(value, str) and len(value) < least else []

    def on_maxLength(self, value, most, schema, at):
        return [f"{at}: long"] if isinstance(value, str) and len(value) > most else []

    def on_pattern(self, value, pattern, schema, at):
        good = not isinstance(value, str) or re.search(pattern, value)
        return [] if good else [f"{at}: {value!r:.40} is not {pattern}"]


def altered(value, schema):
    """The same with another value of each key, and with a key that nobody knows."""
    unknown = ["nobody knows it"] if schema.get("additionalProperties") is False else []
    for key in unknown + [key for key in value if key not in FREE]:
        other = copy.deepcopy(value)
        other[key] = {"nobody knows it": [None]}
        yield other


def read_yaml(text):
    """Mappings of scalars, two levels, as sbplan writes them."""
    words = {"true": True, "false": False}
    top, inner = {}, None
    for line in text.splitlines():
        key, _, value = line.strip().partition(":")
        value = value.strip().strip("'")
        scalar = words.get(value, int(value) if value.isdigit() else value)
        if line.startswith("  "):
            inner[key] = scalar
        elif value == "":
            inner = top[key] = {}
        else:
            top[key] = scalar
    return top


def sbplan(words):
    done = subprocess.run([program] + words.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"sbplan {words}: {done.stderr}{done.stdout}")


def object_of(members):
    keys = [key for key, _ in members]
    if len(set(keys)) < len(keys):
        raise SystemExit(f"a key stands twice among {keys}")
    return dict(members)


def load(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if path.endswith(".yaml"):
        return read_yaml(text)
    return json.loads(text, object_pairs_hook=object_of)


def written():
    """Pairs of a schema's name and a file that sbplan wrote."""
    sbplan("search tiny-gpt laptop-4 -o free.json --problem problem.json")
    sbplan("price llama-3.1-8b dgx-h100-8x8 --pp 2 --tp 2 --zero 1 -o stages.json")
    sbplan("price tiny-gpt laptop-4 --tp 2 --zero 2 --set clip_norm=1 --set precision=mixed -o tp.json")
    sbplan("price tiny-mlp laptop-4 --dp 4 -o mlp.json")
    sbplan("price tiny-gpt laptop-4 --tp 2 --set attention_dropout=0.1 -o dropped.json")
    yield from (("plan", name) for name in ("free.json", "stages.json", "tp.json", "mlp.json", "dropped.json"))
    yield "problem", "problem.json"
    for target, plan in (
        ("deepspeed", "tp.json"),
        ("deepspeed", "mlp.json"),
        ("fsdp2", "tp.json"),
        ("galvatron", "stages.json"),
        ("dtensor", "free.json"),
        ("dtensor", "mlp.json"),
        ("dtensor", "dropped.json"),
        ("oneflow", "free.json"),
    ):
        name = f"{target}-{plan}" + (".yaml" if target == "fsdp2" else "")
        sbplan(f"export {plan} --to {target} -o {name}")
        yield "dtensor" if target == "oneflow" else target, name


def main():
    schemas = {}
    for path in glob.glob(root + "/configs/schema/*.schema.json"):
        schemas[os.path.basename(path).split(".")[0]] = Checker(load(path))
    files = [("model", path) for path in glob.glob(root + "/configs/models/*.json")]
    files += [("cluster", path) for path in glob.glob(root + "/configs/clusters/*.json")]
    files += list(written())
    failed, seen = 0, set()
    for name, path in files:
        value = load(path)
        complaints = schemas[name].check(value)
        if name not in seen:
            complaints += [
                f"passes altered: {json.dumps(other):.200}"
                for other in altered(value, schemas[name].schema)
                if not schemas[name].check(other)
            ]
        seen.add(name)
        failed += bool(complaints)
        for complaint in complaints[:5]:
            print(f"{name}: {os.path.basename(path)}{complaint}")
    for name in set(schemas) - seen:
        print(f"no file is held to {name}.schema.json")
        failed += 1
    print(f"{len(files)} files, {failed} failed")
    return failed > 0


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    status = main()
    os.chdir("/")
sys.exit(status)
