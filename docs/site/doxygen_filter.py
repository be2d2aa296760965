"""What Doxygen reads of a header: the text without what no caller writes. Lines keep their numbers."""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as header:
    text = header.read()
where = re.compile(r",?(\s*)std::source_location where = std::source_location::current\(\)")  # the caller's line, for messages
text = where.sub(lambda match: "\n" * match[1].count("\n"), text)
text = re.sub(r"\bONEPASS_(C_)?API\b", "", text)
text = re.sub(r"// NOLINT.*", "", text)
print(text, end="")
