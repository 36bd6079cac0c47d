package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/protocol"
)

// maxSignedBytes is the size limit of a message without a token. Until its signature is verified, its sender is unknown.
const maxSignedBytes = 1 << 20

// authenticate returns the sender of a request: that of its token or, if the protocol allows it, of the signature of its message.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request, proto *describedProtocol) (httpkit.Identity, error) {
	if proto == nil || proto.info.Sender == nil || r.Method != http.MethodPost || len(r.Header["Authorization"]) > 0 {
		return s.authenticator.Authenticate(w, r)
	}
	client := httpkit.ClientPrefix(r)
	if wait := s.authenticator.SignatureWait(client); wait > 0 {
		return httpkit.Identity{}, errTooManyBadSignatures(wait)
	}
	raw, _, err := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: maxSignedBytes, MediaTypes: proto.info.ContentTypes, TypeOptional: true})
	if err != nil {
		return httpkit.Identity{}, err
	}
	r.Body = io.NopCloser(bytes.NewReader(raw))
	p, err := proto.info.Sender(r.Context(), raw)
	if errs.Is(err, errs.Unauthenticated) {
		s.authenticator.CountBadSignature(client, "", "")
	}
	if err != nil {
		return httpkit.Identity{}, err
	}
	return httpkit.Identity{Principal: p}, s.authenticator.Admit(w, r, p)
}

// wantsStream reports whether a request asks for the replies to its message as a stream.
func wantsStream(r *http.Request, proto *describedProtocol) bool {
	return proto.info.Stream != nil && strings.Contains(strings.Join(r.Header["Accept"], ","), "text/event-stream")
}

// streamReplies receives a message and sends the replies to it as server-sent events.
func (s *Server) streamReplies(w http.ResponseWriter, r *http.Request, from httpkit.Identity, proto *describedProtocol, raw []byte) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.connections.accepting, cancel)()
	signed := raw // is kept only if the sender has no token
	if from.Token != "" {
		signed = nil
	}
	checked := time.Now()
	check := func() error {
		if checked = time.Now(); s.isRevoked(ctx, proto, from, signed) {
			return errRevoked
		}
		return nil
	}
	var events *httpkit.Stream
	write := func(b []byte) error {
		if events == nil {
			events = httpkit.NewEventStream(w, s.opts.WriteTimeout)
			httpkit.ReleaseBody(r) // the stream can take hours
		}
		if _, err := events.Write(b); err != nil {
			return err
		}
		return events.Flush()
	}
	peer := protocol.Peer{Principal: from.Principal, Transport: "http", Trace: httpkit.Traceparent(r)}
	s.metrics.countReceived(peer.Transport)
	reply, err := proto.info.Stream(ctx, peer, raw, func(message []byte) error {
		if time.Since(checked) > s.opts.Heartbeat {
			if err := check(); err != nil {
				return err
			}
		}
		return write(httpkit.AppendEvent(nil, "", "message", message))
	}, func() error {
		if err := check(); err != nil {
			return err
		}
		return write([]byte(": heartbeat\n\n"))
	})
	switch {
	case events != nil: // the status was sent; the client sees the end of the stream
		if err != nil && ctx.Err() == nil {
			s.log.InfoContext(ctx, "a stream ended early", "reason", err)
		}
		return nil
	case err != nil:
		return err
	}
	if reply.BadSignature {
		s.authenticator.CountBadSignature(httpkit.ClientPrefix(r), peer.AgentID(), from.Token)
	}
	writeReply(w, reply)
	return nil
}

// isRevoked reports whether the token, or the key that signed the message, was revoked since.
func (s *Server) isRevoked(ctx context.Context, proto *describedProtocol, from httpkit.Identity, raw []byte) bool {
	if from.Token != "" {
		return s.authenticator.Revoked(ctx, from.Token)
	}
	_, err := proto.info.Sender(ctx, raw)
	return httpkit.IsRejected(err)
}

// errRevoked ends a stream whose token or key was revoked.
var errRevoked = errors.New("the token was revoked")
