"""The demonstration page of a run: sentences, images and arithmetic over a dataset, in a browser.

answers.py   what a run shows, and what a tab computes: embeds once what is searched, and answers; knows no page
page.py      the page, in Gradio: its heading, how an image is given, a question asked; answers as HTML
tabs.py      the tabs of a run that is searched with
server.py    the address: on this machine alone, and nothing on the page comes from another
"""

from vsemb.demo.answers import Answer, ComparedSentence, Demo
from vsemb.demo.server import serve_demo

__all__ = ["Answer", "ComparedSentence", "Demo", "serve_demo"]
