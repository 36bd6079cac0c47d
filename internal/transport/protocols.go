package transport

import (
	"cmp"
	"context"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/internal/input"
	"comet/internal/protocol"
	"comet/models"
)

// describedProtocol is a protocol with its description.
type describedProtocol struct {
	protocol.Protocol
	info protocol.Info
}

// isText reports whether messages are text, which has to be quoted within JSON.
func (p *describedProtocol) isText() bool { return !strings.HasSuffix(p.info.ContentTypes[0], "json") }

// maxBytes returns the size limit of a message on a connection.
func (p *describedProtocol) maxBytes() int {
	if p.info.MaxBytes > 0 {
		return p.info.MaxBytes
	}
	return MaxMessageBytes
}

// negotiate returns the version to use with an agent, "" if the protocol states it in a message.
func (p *describedProtocol) negotiate(versions []string) (string, error) {
	if p.info.Negotiate == nil {
		return "", nil
	}
	return p.info.Negotiate(versions)
}

// protocolList selects one of several protocols. The first one is used if nothing selects another.
type protocolList []*describedProtocol

func describe(protocols []protocol.Protocol) protocolList {
	all := make(protocolList, len(protocols))
	for i, p := range protocols {
		all[i] = &describedProtocol{p, p.Info()}
	}
	return all
}

// find returns the first protocol that matches, nil for none.
func (l protocolList) find(match func(protocol.Info) bool) *describedProtocol {
	i := slices.IndexFunc(l, func(p *describedProtocol) bool { return match(p.info) })
	if i < 0 {
		return nil
	}
	return l[i]
}

// named returns the protocol with a name or subprotocol, the first one for "", nil for another
// name.
func (l protocolList) named(name string) *describedProtocol {
	if name == "" {
		return l[0]
	}
	return l.find(func(i protocol.Info) bool { return i.Name == name || slices.Contains(i.Subprotocols, name) })
}

// required is named with errs.InvalidParameter for an unknown name.
func (l protocolList) required(name string) (*describedProtocol, error) {
	if p := l.named(name); p != nil {
		return p, nil
	}
	return nil, errs.New(errs.InvalidParameter, "the protocol %s is unknown; the protocols are %s", input.Quote(name), strings.Join(l.subprotocols(), ", "))
}

// subprotocols returns the preferred subprotocol of each protocol.
func (l protocolList) subprotocols() []string {
	out := make([]string, len(l))
	for i, p := range l {
		out[i] = p.info.Subprotocols[0]
	}
	return out
}

// offered returns the first supported protocol and subprotocol among those that a client offers. The
// subprotocol is "" if the client offers none.
func (l protocolList) offered(values []string) (proto *describedProtocol, subprotocol string, err error) {
	offered := strings.Join(values, ",")
	if strings.Trim(offered, " ,") == "" {
		return l[0], "", nil
	}
	for name := range strings.SplitSeq(offered, ",") {
		name = strings.TrimSpace(name)
		if p := l.find(func(i protocol.Info) bool { return slices.Contains(i.Subprotocols, name) }); p != nil {
			return p, name, nil
		}
	}
	return nil, "", errs.New(errs.InvalidRequest, "none of the offered subprotocols is supported: the server supports %s, the client offered %s",
		strings.Join(l.subprotocols(), ", "), input.Quote(strings.Join(values, ", ")))
}

// forContentType returns the protocol of a media type, the first one for "". Its error is
// errs.UnsupportedMediaType.
func (l protocolList) forContentType(text string) (*describedProtocol, error) {
	if text == "" {
		return l[0], nil
	}
	if mediaType, _, err := mime.ParseMediaType(text); err == nil {
		if p := l.find(func(i protocol.Info) bool { return slices.Contains(i.ContentTypes, mediaType) }); p != nil {
			return p, nil
		}
	}
	types := make([]string, len(l))
	for i, p := range l {
		types[i] = p.info.ContentTypes[0]
	}
	return nil, errs.New(errs.UnsupportedMediaType, "the body must be %s in UTF-8; it was %s", strings.Join(types, " or "), input.Quote(text))
}

// ofWorker returns the protocol in which a worker has registered on a transport, the first one if
// it has not.
func (l protocolList) ofWorker(w models.Worker, transport string) *describedProtocol {
	if p := l.named(w.Protocol); p != nil && w.Transport == transport {
		return p
	}
	return l[0]
}

// ofRequest returns the protocol in which a request is refused.
func (l protocolList) ofRequest(r *http.Request) *describedProtocol {
	if r.Method == http.MethodPost && r.URL.Path == agentRoot+"message" {
		if p, err := l.forContentType(r.Header.Get("Content-Type")); err == nil {
			return p
		}
	}
	if p := l.named(r.URL.Query().Get("protocol")); p != nil {
		return p
	}
	return l[0]
}

func getPrompt(proto *describedProtocol) handler {
	return func(w http.ResponseWriter, r *http.Request, from httpkit.Identity) error {
		if err := maySend(from.Principal); err != nil && !from.Has(models.ScopeAgentsRead) {
			return err
		}
		language := cmp.Or(r.URL.Query().Get("lang"), "fr")
		peer := protocol.Peer{Principal: from.Principal}
		text, err := proto.info.Prompt(r.Context(), chi.URLParam(r, "name"), language, peer.AgentID())
		if err != nil {
			return err
		}
		writeReply(w, protocol.Reply{Status: http.StatusOK, Body: []byte(text), ContentType: "text/plain; charset=utf-8"})
		return nil
	}
}

// signingKey returns the key with which an agent signs the messages of a protocol, the zero key for
// none.
func (s *Server) signingKey(ctx context.Context, agentID string, proto *describedProtocol) (models.AgentKey, error) {
	if s.core.Keys == nil || proto.info.KeyAlgorithm == "" {
		return models.AgentKey{}, nil
	}
	return s.core.Keys.Signing(ctx, agentID, proto.info.KeyAlgorithm)
}

// verifySignature verifies the signature of a first message and counts an invalid one.
func (s *Server) verifySignature(ctx context.Context, proto *describedProtocol, from protocol.Peer, raw []byte, client netip.Prefix, token string) error {
	if proto.info.KeyAlgorithm == "" {
		return nil
	}
	err := proto.info.Verify(ctx, from, raw)
	if errs.Is(err, errs.Unauthenticated) {
		s.authenticator.CountBadSignature(client, from.AgentID(), token)
	}
	return err
}

// errTooManyBadSignatures is the error for a throttled address or agent.
func errTooManyBadSignatures(wait time.Duration) error {
	return errs.New(errs.RateLimited, "too many invalid signatures from this address").With("retry_after", int(math.Ceil(wait.Seconds())))
}
