"""The program of a slim folder: `python -I -S FOLDER FILE|-|--self-test|--info`. It is copied, never imported."""

import json
import sys
from math import isfinite
from pathlib import Path

USAGE = """usage: python FOLDER INPUTS.json (or - for stdin: a JSON object of nested lists), or --self-test, or --info
       python FOLDER photo.png|sound.wav|text.txt, where the bundle has a pipeline"""


def main(arguments: list[str]) -> int:
    """Run the model of this folder once, or its golden examples."""
    import edge_infer
    from edge_infer.errors import EdgeInferError

    here = Path(__file__).parent
    home = here if here.is_dir() else here.parent  # the parent of a zip
    model = next(home.glob("model.*"))
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    try:
        if arguments[0] == "--self-test":
            with edge_infer.load(model, arrays="tensor", self_test=True) as session:
                print(f"{session}: the golden examples are right")
            return 0
        if arguments[0] not in ("-", "--info") and not arguments[0].endswith(".json"):
            from edge_infer.tasks.answers import as_json

            with edge_infer.pipeline(model) as answer:
                print(json.dumps(finite(as_json(answer(arguments[0])))))
            return 0
        with edge_infer.load(model, arrays="tensor") as session:
            if arguments[0] == "--info":
                specs = {"inputs": session.inputs, "outputs": session.outputs}
                print(json.dumps({side: [spec.to_json() for spec in values] for side, values in specs.items()}))
                return 0
            text = sys.stdin.read() if arguments[0] == "-" else Path(arguments[0]).read_text("utf-8")
            results = session.run(json.loads(text))
    except EdgeInferError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(f"error: {arguments[0]}: {error}", file=sys.stderr)
        return 1
    print(json.dumps({name: finite(value.tolist()) for name, value in results.items()}))
    return 0


def finite(value: object) -> object:
    """Return a JSON value with null for NaN and the infinities, which JSON does not know."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(member) for key, member in value.items()}
    return [finite(member) for member in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
