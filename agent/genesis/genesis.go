// Package genesis sends requests over the Genesis protocol 1.0: for comet send, and for Go programs that have no
// connection as an agent.
package genesis

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	wire "comet/internal/wire/genesis"
)

// Client sends requests to a server.
type Client struct {
	server, token, from string
	key                 ed25519.PrivateKey
}

// Options configures New.
type Options struct {
	// Server is the address, such as http://127.0.0.1:8080.
	Server string
	// Token is "" for none. Owner is the agent of the token, or its name if it is bound to no agent.
	Token, Owner string
	// From is the sender, "" for the owner of the token.
	From string
	// Key is an Ed25519 private key in PKCS #8, encoded as PEM, with which messages are signed; nil for none. If the token
	// is not that of the sender, the signature replaces it.
	Key []byte
}

// New returns a client. It returns an error for an invalid key.
func New(o Options) (*Client, error) {
	c := &Client{server: o.Server, token: o.Token, from: cmp.Or(o.From, o.Owner)}
	if o.Key == nil {
		return c, nil
	}
	if c.from != o.Owner {
		c.token = ""
	}
	var err error
	c.key, err = parseKey(o.Key)
	return c, err
}

// Message is a verified message from comet.
type Message struct {
	// Type is REQUEST, RESPONSE, EVENT or ERROR. Status is that of a RESPONSE: SUCCESS, FAILURE or PARTIAL.
	Type, Status string
	// Value is the data of a RESPONSE, the payload of a REQUEST or an EVENT, nil for none.
	Value json.RawMessage
	// Code and Text describe an ERROR, or a RESPONSE with the status FAILURE. Kind is the errorType of an ERROR.
	Kind, Code, Text string
	// HTTPStatus is the status of the response that ends with the message, 503 for an ERROR in a stream.
	HTTPStatus int
	// Raw is the message as it was received.
	Raw []byte
}

// IsResponse reports whether the message is a RESPONSE.
func (m Message) IsResponse() bool { return m.Status != "" }

// Failure returns the code and the text of a failure, "" for success.
func (m Message) Failure() string {
	if m.Code == "" {
		return ""
	}
	return m.Code + ": " + m.Text
}

// maxLine is the longest line of a stream: a message of 8 MiB and its prefix.
const maxLine = wire.MaxSize + 16

// parseKey parses an Ed25519 private key in PKCS #8, encoded as PEM.
func parseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New(`there is no "PRIVATE KEY" in PEM; "openssl genpkey -algorithm ed25519" creates one`)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is not a key in PKCS #8: %w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New(`the key is not an Ed25519 key; "openssl genpkey -algorithm ed25519" creates one`)
	}
	return key, nil
}

// Send sends a REQUEST to an agent, with to "" to any that offers the intent, and returns the final RESPONSE or ERROR. It calls
// each with the messages before that, such as partial responses. It verifies all of them with the keys that the server publishes.
func (c *Client) Send(ctx context.Context, to, intent string, payload []byte, each func(Message) error) (end Message, err error) {
	text, err := c.format(cmp.Or(to, wire.Broadcast), intent, payload)
	if err != nil {
		return end, err
	}
	keys, err := c.serviceKeys(ctx)
	if err != nil {
		return end, err
	}
	resp, err := c.do(ctx, http.MethodPost, "/api/genesis/messages", text)
	if err != nil {
		return end, err
	}
	defer func() { _ = resp.Body.Close() }()
	prefix := []byte("data: ")
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		prefix = nil // a message on one line
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		raw, found := bytes.CutPrefix(lines.Bytes(), prefix)
		if !found {
			continue
		}
		m, err := verified(bytes.Clone(raw), keys)
		if err != nil {
			return end, fmt.Errorf("the response (%s) is not a message of comet: %w", resp.Status, err)
		}
		if m.Type == string(wire.TypeError) || m.Type == string(wire.TypeResponse) && m.Status != string(wire.Partial) {
			m.HTTPStatus = resp.StatusCode
			if m.Kind != "" && resp.StatusCode == http.StatusOK { // in a stream
				m.HTTPStatus = http.StatusServiceUnavailable
			}
			return m, nil
		}
		if err := each(m); err != nil {
			return end, err
		}
	}
	if err := lines.Err(); err != nil {
		return end, err
	}
	return end, errors.New("the stream ended before the task; the task continues")
}

// do sends a request to the server.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return http.DefaultClient.Do(req)
}

// format returns the message of a request.
func (c *Client) format(to, intent string, payload []byte) ([]byte, error) {
	m := wire.Message{ID: uuid.NewString(), From: c.from, To: to, Timestamp: time.Now().UnixNano(), Body: wire.Request{
		Intent: intent, Confidence: 1, Entities: []wire.Entity{}, Payload: payload, Context: []byte("{}"), Priority: wire.Normal, Options: wire.Options{Stream: true},
	}}
	key := c.key
	if key == nil {
		key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // removed below
	}
	if err := m.Sign(key, wire.ProfileJCS); err != nil {
		return nil, err
	}
	text, err := m.Format()
	if err != nil || c.key != nil {
		return text, err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return nil, err
	}
	for _, name := range []string{"signature", "signatureJcs", "publicKey"} {
		delete(members, name)
	}
	return json.Marshal(members)
}

// serviceKeys returns the keys with which comet signs.
func (c *Client) serviceKeys(ctx context.Context) ([]ed25519.PublicKey, error) {
	resp, err := c.do(ctx, http.MethodGet, "/.well-known/jwks.json", nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var set struct {
		Keys []struct {
			X string `json:"x"`
		} `json:"keys"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&set); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server has no keys at /.well-known/jwks.json: %s", resp.Status)
	}
	var keys []ed25519.PublicKey
	for _, k := range set.Keys {
		if raw, err := base64.RawURLEncoding.DecodeString(k.X); err == nil && len(raw) == ed25519.PublicKeySize {
			keys = append(keys, raw)
		}
	}
	return keys, nil
}

// verified parses a message and verifies the signature of the whole message.
func verified(raw []byte, keys []ed25519.PublicKey) (Message, error) {
	m, err := wire.Parse(raw)
	if err != nil {
		return Message{}, err
	}
	known := false
	for _, key := range keys {
		if known = known || key.Equal(m.PublicKey); known {
			break
		}
	}
	if !known {
		return Message{}, errors.New("its publicKey is not one of the server's keys")
	}
	if _, err := m.Verify(m.PublicKey, wire.JCS); err != nil {
		return Message{}, err
	}
	out := Message{Type: string(m.Type), Raw: raw}
	switch body := m.Body.(type) {
	case wire.Request:
		out.Value = json.RawMessage(body.Payload)
	case wire.Response:
		out.Status, out.Value = string(body.Status), json.RawMessage(body.Data)
		if body.Error != nil {
			out.Code, out.Text = body.Error.Code, body.Error.Message
		}
	case wire.Event:
		out.Value = json.RawMessage(body.Payload)
	case wire.Failure:
		out.Kind, out.Code, out.Text = string(body.ErrorType), body.ErrorCode, body.Message
	}
	return out, nil
}
