"""The demonstration page of a run: sentences, images and arithmetic over a dataset, in a browser.

demonstration.py what a run shows: the dataset's images, by their keys and bytes
answers.py       what a tab computes: embeds once what is searched, and answers; knows no page
cards.py         answers as HTML, pictures within it
page.py          the page, in Gradio: its heading, how an image is given, a question asked, an answer shown
tabs.py          the tabs of a run that is searched with
server.py        the address: on this machine alone, and nothing on the page comes from another
"""

from vsemb.demo.answers import Answer, ComparedSentence, Demo
from vsemb.demo.server import serve_demo

__all__ = ["Answer", "ComparedSentence", "Demo", "serve_demo"]
