"""Parts of chat templates that several of the built-in ones share: contents, and lists of tools.

Plain constructs only, see `chat_templates`.
"""

# A content is a text or a list of parts, or absent beside tool calls.
CONTENT = """\
{%- if message['content'] is string -%}
{{ message['content'] }}
{%- elif message['content'] -%}
{%- for part in message['content'] -%}
{{ part['text'] }}
{%- endfor -%}
{%- endif -%}
"""
TRIMMED_CONTENT = "{%- set content -%}\n" + CONTENT + "{%- endset -%}\n{{ content | trim -}}\n"

# One JSON object a line.
TOOLS_AS_JSON = """\
{%- for tool in tools -%}
{{ '\\n' }}
{%- if tool['function'] -%}
{{ tool['function'] | tojson }}
{%- else -%}
{{ tool | tojson }}
{%- endif -%}
{%- endfor -%}
"""

# Signatures, `name(parameter: type, optional?: type): description`: a third of the tokens where
# parameters have a type alone. The schema of a parameter that is more, other than texts to choose
# from, is written as JSON, and so is all else that describes the parameters or the function:
# nothing of a schema is lost, but that there are no other parameters, which a signature says by
# itself. The lines of a description are indented, or they would look like tools.
TOOLS_AS_SIGNATURES = """\
{{ 'Tools:' }}
{%- for tool in tools -%}
{%- if tool['function'] -%}
{%- set function = tool['function'] -%}
{%- else -%}
{%- set function = tool -%}
{%- endif -%}
{%- set parameters = function['parameters'] or {} -%}
{%- set properties = parameters['properties'] or {} -%}
{%- set required = parameters['required'] or [] -%}
{%- if required is not iterable or required is string or required is mapping -%}
{%- set required = [] -%}
{%- endif -%}
{{ '\\n' + function['name'] + '(' }}
{%- for name, schema in properties | items -%}
{%- if not loop.first -%}
{{ ', ' }}
{%- endif -%}
{{ name }}
{%- if name not in required -%}
{{ '?' }}
{%- endif -%}
{{ ': ' }}
{%- if schema is mapping and schema | length == 1 and schema['type'] is string -%}
{{ schema['type'] }}
{%- elif schema is mapping and schema | length == 2 and schema['type'] == 'string'
    and schema['enum'] -%}
{%- for value in schema['enum'] -%}
{%- if not loop.first -%}
{{ '|' }}
{%- endif -%}
{{ value | tojson }}
{%- endfor -%}
{%- else -%}
{{ schema | tojson }}
{%- endif -%}
{%- endfor -%}
{%- for name in required -%}
{%- if name not in properties -%}
{%- if properties or not loop.first -%}
{{ ', ' }}
{%- endif -%}
{{ name }}
{%- endif -%}
{%- endfor -%}
{%- for key, value in parameters | items -%}
{%- if key != 'properties'
    and not (key == 'required' and (required or not value))
    and not (key == 'type' and value == 'object')
    and not (key == 'additionalProperties' and value == false) -%}
{{ '; ' }}{{ key | tojson }}{{ ': ' }}{{ value | tojson }}
{%- endif -%}
{%- endfor -%}
{{ ')' }}
{%- for key, value in function | items -%}
{%- if key not in ['type', 'name', 'description', 'parameters'] -%}
{{ '; ' }}{{ key | tojson }}{{ ': ' }}{{ value | tojson }}
{%- endif -%}
{%- endfor -%}
{%- if function['description'] -%}
{{ ': ' }}{{ function['description'] | replace('\\n', '\\n  ') }}
{%- endif -%}
{%- endfor -%}
"""
