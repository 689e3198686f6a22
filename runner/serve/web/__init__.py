"""The web page of a cluster: runs, nodes and incidents as they are now, and buttons for what people may ask.

`stoker web` serves it, on any machine that reaches the store, also while no supervisor leads. It reads what `stoker status` and
`stoker story` read. What a visitor asks becomes the request that the command of that name sends, signed with the cluster's
token, which never leaves this process: visitors show tokens of the page's own, one for viewers and one for operators.

Text of ranks, nodes and people is hostile. It goes out as JSON and becomes text of the page, never markup; every answer
forbids scripts but the page's own, frames, and requests from elsewhere. A reader that is slow or gone costs the others nothing.
"""
