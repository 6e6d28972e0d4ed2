"""A transcription server with OpenAI's endpoints: requests of many clients are decoded together, answered as if alone.

`app` has the routes, `engine` the queue and the batches, `uploads` what clients send, `answers` what they get,
`realtime` the WebSocket, `page/` what a browser shows.
"""
