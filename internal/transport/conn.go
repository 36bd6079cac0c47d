package transport

import (
	"context"

	"github.com/coder/websocket"
)

// messageConn is what the texts of a line travel over. Reading and writing may go on at the same
// time.
type messageConn interface {
	// read returns the next text. It ends with ctx.
	read(ctx context.Context) ([]byte, error)
	// write sends a text. Where ctx ends first, the connection is of no use any more.
	write(ctx context.Context, text []byte) error
	// ping asks whether the other end is there.
	ping(ctx context.Context) error
	// close ends the connection, with a code and a word where it can carry them.
	close(code websocket.StatusCode, word string)
	// cut ends the connection without a word. It may be over already.
	cut()
}

// webSocketConn is a WebSocket.
type webSocketConn struct{ *websocket.Conn }

func (c webSocketConn) read(ctx context.Context) ([]byte, error) {
	_, text, err := c.Read(ctx)
	return text, err
}

func (c webSocketConn) write(ctx context.Context, text []byte) error {
	return c.Write(ctx, websocket.MessageText, text)
}

func (c webSocketConn) ping(ctx context.Context) error { return c.Ping(ctx) }

func (c webSocketConn) close(code websocket.StatusCode, word string) { _ = c.Close(code, word) }

func (c webSocketConn) cut() { _ = c.CloseNow() }
