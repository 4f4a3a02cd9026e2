"""Demonstration page of a run: search by sentence, image and arithmetic in a browser.

pictures.py    the pictures that are searched: of a dataset, of an index, or image files
answers.py     results of the tabs, computed without a page: indexes and encoders are opened once
options.py     the family of options that systems bring
page.py        the Gradio page: heading, image inputs, events, results as HTML
tabs.py        the tabs of a retrieval run
thumbnails.py  the pictures as small JPEGs
server.py      the HTTP server on 127.0.0.1; the page makes no requests to other hosts
"""
