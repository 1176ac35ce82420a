"""Templates from strangers: they end in one clear error, never in a hang, a crash or gigabytes."""

from __future__ import annotations

import datetime
import resource
import time

import pytest

from llamita.errors import TokenizerError
from llamita.tokenizer import chat_sandbox
from llamita.tokenizer.chat_bounds import MAX_SECONDS
from llamita.tokenizer.chat_sandbox import MAX_TEMPLATE, render_template

GROW = "{%% set ns = namespace(x='ab', y=[1], z=[1]) %%}{%% for i in range(60) %%}%s{%% endfor %%}"
GROWING = [
    "{% set ns.x = ns.x + ns.x %}",
    "{% set ns.x = ns.x ~ ns.x %}",
    "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}",
    "{% set ns.x = '%s%s' % (ns.x, ns.x) %}",
    "{% set ns.x = '%s%s' | format(ns.x, ns.x) %}",
    "{% set ns.x = '{0}{0}'.format(ns.x) %}",
    "{% set ns.x = [ns.x, ns.x] | join %}",
    "{% set ns.x = ''.join([ns.x, ns.x]) %}",
    "{% set ns.x = ns.x.replace('a', 'aa') %}",
    "{% set ns.x = ns.x | replace('a', 'aa') %}",
    "{% set ns.y = ns.y + ns.y %}",
    "{% set ns.y = [ns.y, ns.y] %}",
    "{% set ns.y = {'a': ns.y, 'b': ns.y} %}",
    "{% set ns.y = dict(a=ns.y, b=ns.y) %}",
    "{% set ns.y = ns.y | batch(2, ns.y) | list %}",
    "{% set ns.y = [ns.y, ns.y] | sum(start=[]) %}",
    "{% set ns.y = [ns.y, ns.y] %}{% set ns.z = [ns.z, ns.z] %}{{ ns.y == ns.z }}",
    "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{% set ns.x = twice(ns.x) %}",
    "{% filter upper %}{{ 'a' * 900000 }}{% endfilter %}",
]
HOSTILE = [
    "{{ 'a' * 10**9 }}",
    "{{ [1] * 10**9 }}",
    "{{ 10 ** 10 ** 10 }}{{ 7 ** (10 ** 8) }}",
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "{% for i in range(90000) %}{{ 'a' * 90000 }}{% endfor %}",
    "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%*d' % (10**9, 1) }}",
    "{{ '%.999999999f' % 1.0 }}",
    "{{ '{:>999999999}'.format(1) }}",
    "{{ '{:>{w}}'.format(1, w=10**9) }}",
    "{{ 'a'.center(10**9) }}{{ 'a'.zfill(10**9) }}",
    "{{ 'a'.ljust(10**9) }}",
    "{{ ('\t' * 90000).expandtabs(9999) }}",
    "{{ 'a' | indent(10**9) }}",
    "{{ ('a\n' * 90000) | indent(9999) }}",
    "{{ 'a' | center(10**9) }}",
    "{{ ('a' * 90000).replace('', 'b' * 90000) }}",
    "{{ range(90000) | join('a' * 90000) }}",
    "{{ ('a' * 90000).join(['b'] * 90000) }}",
    "{{ 'ab'.translate({97: 'a' * 900000}) }}",
    "{{ [1] | tojson(indent=10**9) }}",
    "{{ 1 | round(10**9, 'ceil') }}",
    "{{ (1).to_bytes(10**9) }}",
    "{{ lipsum(n=10**6) }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ '{0.__class__.__mro__}'.format('') and ''.__class__.x }}",
    "{{ namespace(__class__=1) }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'role': 'x'}) }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
    "{{ " + "(" * 50_000,
    "{{ 1" + " + 1" * 20_000 + " }}",
    "{% if 1 %}" * 3_000,
    "{% for i in [1] %}" * 100 + "{% endfor %}" * 100,
    "{{ " + "[" * 5_000 + "]" * 5_000 + " }}",
    "x" * (MAX_TEMPLATE + 1),
]
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("template", HOSTILE + [GROW % body for body in GROWING])
def test_a_hostile_template_ends_in_an_error(template: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with pytest.raises(TokenizerError):
        render_template(template, {"messages": MESSAGES})
    assert time.process_time() - start < 2 * MAX_SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000  # kilobytes


def test_time_is_the_backstop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamita.tokenizer.chat_bounds.MAX_SECONDS", -1.0)
    with pytest.raises(TokenizerError, match="seconds"):
        render_template("{% for m in messages %}{% endfor %}", {"messages": MESSAGES})


def test_a_long_chat_is_no_harm() -> None:
    messages = [{"role": "user", "content": "word " * 200}] * 2_000
    template = "{% for m in messages %}{{ m.role ~ m['content'] + '\n' }}{% endfor %}"
    assert len(render_template(template, {"messages": messages})) == 2_000 * 1_005


@pytest.mark.parametrize(
    ("template", "line", "words"),
    [
        ("\n\n{{ foo() }}", 3, "'foo' is undefined"),
        ("\n{% if %}", 2, "Expected an expression"),
        ("\n{{ 'x' | nothing }}", 2, "No filter named 'nothing'"),
        ("{{ 1 }}\n{{ messages[0].content + 1 }}", 2, "str"),
        ("\n\n\n{{ raise_exception('only users') }}", 4, "refuses this conversation: only users"),
    ],
)
def test_errors_name_the_line(template: str, line: int, words: str) -> None:
    with pytest.raises(TokenizerError, match=rf"\(line {line}\)") as caught:
        render_template(template, {"messages": MESSAGES})
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ x | tojson }}", '{"a": "<é>\'&"}'),
        ("{{ x | tojson(indent=2) }}", '{\n  "a": "<é>\'&"\n}'),
        ("{{ x | tojson(ensure_ascii=true) }}", '{"a": "<\\u00e9>\'&"}'),
        ("{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("  {% if 1 %}\n  a\n  {% endif %}\n", "  a\n"),
        ("{{ 'a' ~ 1 ~ none ~ [1] ~ undefined_name }}", "a1None[1]"),
        ("{{ '%s-%03d' % ('a', 7) }}{{ '{}{b}'.format(1, b=2) }}", "a-00712"),
        ("{{ 2 * 3 + 2 ** 3 }}{{ 'ab' * 2 }}{{ 7 % 4 }}", "14abab3"),
        ("{{ 'a,b'.split(',') | join('-') }}{{ 'x' | upper | indent }}", "a-bX"),
        ("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}"
         "{{ ns.n }}", "3"),
        ("{% generation %}a{% endgeneration %}b", "ab"),
        ("{% for a, b in {'x': 1}.items() %}{{ a }}{{ b }}{% endfor %}{{ (1, 2)[1] }}", "x12"),
        ("{{ [3, 1] | sort | list }}{{ [1, 2] | sum }}{{ [[1], [2]] | sum(start=[]) }}",
         "[1, 3]3[1, 2]"),
        ("{{ strftime_now('%Y') }}", str(datetime.datetime.now().year)),
    ],
)  # fmt: skip
def test_templates_run_as_in_transformers(template: str, text: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    variables = {"x": {"a": "<é>'&"}}
    [theirs], _ = render_jinja_template([MESSAGES], chat_template=template, **variables)
    ours = {"messages": MESSAGES, "tools": None, "documents": None, **variables}
    assert render_template(template, ours) == theirs == text


def test_marks_stand_around_generation_blocks() -> None:
    template = "a{% generation %}b{{ 1 }}{% endgeneration %}c"
    assert render_template(template, {}, ("<", ">")) == "a<b1>c"
    assert chat_sandbox.has_generation_blocks(template)
    assert not chat_sandbox.has_generation_blocks("{# {% generation %} #}a")
