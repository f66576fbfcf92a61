"""The live view: panels in a browser of a run, a comparison or a sweep; needs Bokeh (`fedslot[live]`).

It reads the files that runs write, in a process of its own, so a viewer cannot slow a run or end it.

growing.py    a CSV file that grows, read piece by piece
watched.py    the runs of a folder, their rows so far, progress and time left
panels.py     the panels as Bokeh figures
page.py       panels and controls as a document; page.html, panels.html, panels.css and page.js are its parts
viewer.py     one browser's document, and the increments that it is sent
address.py    where it is served: host, port, origins
server.py     the server, and the token of its address
beside.py     the server as a child process beside a run
embedded.py   the same panels in a report
"""
