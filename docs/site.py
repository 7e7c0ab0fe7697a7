"""Pages of the documentation site that lie outside of docs/, and links that leave it."""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#:]+)(#[^)]*)?\)")


def on_files(files, config):
    """Add the pages of the repository's root to the site."""
    for page, source in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links as the site has them. A link to a file that the site lacks becomes its text."""
    source = page.file.src_uri
    folder = (Path("docs") / source).parent if source not in PAGES else Path()

    def site_link(match):
        image, text, target, anchor = match.groups()
        path = (ROOT / folder / target).resolve()
        if not path.exists():
            return match[0]  # mkdocs reports it
        name = path.relative_to(ROOT).as_posix()
        outside = {file: page for page, file in PAGES.items()}
        uri = outside.get(name, name.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None:
            return text
        start = Path(source).parent
        up = "../" * len(start.parts)
        return f"{image}[{text}]({up}{uri}{anchor or ''})"

    return _LINK.sub(site_link, markdown)
