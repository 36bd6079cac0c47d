// Package genesis sends requests in the Genesis protocol 1.0, for comet send and for programs in Go that are no agents
// of their own connection.
package genesis

import (
	"bufio"
	"bytes"
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
	// Server is the address, such as http://127.0.0.1:8080. Token is "" if the signature replaces it.
	Server, Token string
	// Key signs the requests, nil for none.
	Key ed25519.PrivateKey
}

// Request is a REQUEST of the protocol. To is an agent, or "" for any that offers the intent.
type Request struct {
	From, To, Intent string
	Payload          json.RawMessage
}

// Message is a verified message from comet.
type Message struct {
	// Type is REQUEST, RESPONSE, EVENT or ERROR. Status is that of a RESPONSE: SUCCESS, FAILURE or PARTIAL.
	Type, Status string
	// Value is the data of a RESPONSE, the payload of a REQUEST or an EVENT, nil for none.
	Value json.RawMessage
	// Code and Text describe an ERROR, or a RESPONSE with the status FAILURE. Kind is the errorType of an ERROR.
	Kind, Code, Text string
	// HTTPStatus is the status of the response with the message.
	HTTPStatus int
	// Raw is the message as it was received.
	Raw []byte
}

// maxLine is the longest line of a stream: a message of 8 MiB and its prefix.
const maxLine = wire.MaxSize + 16

// ParseKey parses an Ed25519 private key in PKCS #8, encoded as PEM.
func ParseKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New(`it has no "PRIVATE KEY" in PEM; openssl genpkey -algorithm ed25519 makes one`)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is not a key in PKCS #8: %w", err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("it is a key of another algorithm (%T); openssl genpkey -algorithm ed25519 makes one of Ed25519", parsed)
	}
	return key, nil
}

// Send sends a request and calls each with every message that answers it, in order. comet's signature of each is
// verified with the keys that the server publishes. Its errors are those of the connection, of the verification, and of each.
func (c *Client) Send(ctx context.Context, r Request, each func(Message) error) error {
	text, err := c.format(r)
	if err != nil {
		return err
	}
	keys, err := c.serviceKeys(ctx)
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, http.MethodPost, "/api/genesis/messages", text)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	received := func(raw []byte) error {
		m, err := verified(raw, keys)
		if err != nil {
			return fmt.Errorf("the response (%s) is not a message of comet: %w", resp.Status, err)
		}
		m.HTTPStatus = resp.StatusCode
		return each(m)
	}
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		raw, err := io.ReadAll(io.LimitReader(resp.Body, maxLine))
		if err == nil && len(raw) > 0 {
			err = received(raw)
		}
		return err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if data, found := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); found {
			if err := received(bytes.Clone(data)); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// do sends a request to the server.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Server, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	return http.DefaultClient.Do(req)
}

// format returns the message of a request.
func (c *Client) format(r Request) ([]byte, error) {
	to := r.To
	if to == "" {
		to = wire.Broadcast
	}
	m := wire.Message{ID: uuid.NewString(), From: r.From, To: to, Timestamp: time.Now().UnixNano(), Body: wire.Request{
		Intent: r.Intent, Confidence: 1, Entities: []wire.Entity{}, Payload: []byte(r.Payload), Context: []byte("{}"), Priority: wire.Normal, Options: wire.Options{Stream: true},
	}}
	key := c.Key
	if key == nil {
		key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) // removed below
	}
	if err := m.Sign(key, wire.ProfileJCS); err != nil {
		return nil, err
	}
	text, err := m.Format()
	if err != nil || c.Key != nil {
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
