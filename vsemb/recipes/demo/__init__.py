"""The demonstration page of a run: sentences, images and arithmetic over a dataset, in a browser.

answers.py   what a tab computes: embeds once what is searched, and answers; knows no page
cards.py     answers as HTML, pictures within it
page.py      the tabs, in Gradio
server.py    the address: on this machine alone, and nothing on the page comes from another
"""

from vsemb.recipes.demo.answers import Answer, ComparedSentence, Comparison, Demo
from vsemb.recipes.demo.server import serve_demo

__all__ = ["Answer", "ComparedSentence", "Comparison", "Demo", "serve_demo"]
