package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/wire"
	"comet/internal/errs"
	"comet/internal/input"
)

// Limits of cards.
const (
	MaxCard      = 256 << 10 // bytes
	CardTimeout  = 5 * time.Second
	maxEndpoints = 20
	maxSkills    = 1000
)

// Skill is a skill of an agent.
type Skill struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Card is an agent card of version 1.0 or 0.3.
type Card struct {
	Name         string               `json:"name"`
	Description  string               `json:"description"`
	Version      string               `json:"version"`
	Interfaces   []a2a.AgentInterface `json:"supportedInterfaces"`
	Skills       []Skill              `json:"skills"`
	Capabilities struct {
		Streaming bool `json:"streaming"`
	} `json:"capabilities"`
	// Signature is the result of VerifyCard, which Mark has added.
	Signature string `json:"cometSignature,omitempty"`
	// The members below are of 0.3.
	URL                  string                `json:"url"`
	ProtocolVersion      string                `json:"protocolVersion"`
	PreferredTransport   a2a.TransportProtocol `json:"preferredTransport"`
	AdditionalInterfaces []struct {
		URL       string                `json:"url"`
		Transport a2a.TransportProtocol `json:"transport"`
	} `json:"additionalInterfaces"`
}

// ParseCard reads a card. Its error is errs.InvalidRequest and says what is wrong with the card.
func ParseCard(raw []byte) (c Card, err error) {
	bad := func(format string, args ...any) (Card, error) {
		return Card{}, errs.New(errs.InvalidRequest, "the agent card "+format, args...)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return bad("is not the JSON of a card: %s", err.Error())
	}
	if len(c.Interfaces) == 0 && c.URL != "" {
		version, _, _ := strings.Cut(cmp.Or(c.ProtocolVersion, "0.3"), "-")
		if parts := strings.SplitN(version, ".", 3); len(parts) == 3 {
			version = parts[0] + "." + parts[1]
		}
		c.Interfaces = []a2a.AgentInterface{{URL: c.URL, ProtocolBinding: cmp.Or(c.PreferredTransport, a2a.TransportProtocolJSONRPC), ProtocolVersion: a2a.ProtocolVersion(version)}}
		for _, i := range c.AdditionalInterfaces {
			c.Interfaces = append(c.Interfaces, a2a.AgentInterface{URL: i.URL, ProtocolBinding: i.Transport, ProtocolVersion: a2a.ProtocolVersion(version)})
		}
	}
	switch {
	case c.Name == "" || len(c.Name) > 1000:
		return bad("must have a name of at most 1000 bytes")
	case len(c.Interfaces) == 0:
		return bad("has no address: version 1.0 has supportedInterfaces, version 0.3 has url")
	case len(c.Interfaces) > maxEndpoints || len(c.Skills) > maxSkills:
		return bad("must have at most %d interfaces and %d skills", maxEndpoints, maxSkills)
	}
	return c, nil
}

// Endpoint returns the first interface that this package supports and permit accepts. With a secret it must be on the server of the
// card, whose address is home. If there is none, the error says why.
func (c Card) Endpoint(home string, secret bool, permit func(address string) error) (a2a.AgentInterface, error) {
	var reasons []string
	for _, e := range c.Interfaces {
		u, err := url.Parse(e.URL)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			reasons = append(reasons, input.Quote(e.URL)+" is no http or https address")
		case e.ProtocolVersion == "0.3" && e.ProtocolBinding == a2a.TransportProtocolHTTPJSON:
			reasons = append(reasons, "HTTP+JSON of version 0.3 is not supported")
		case e.ProtocolVersion != "0.3" && e.ProtocolVersion != "1.0":
			reasons = append(reasons, "the version "+input.Quote(string(e.ProtocolVersion))+" is not 1.0 or 0.3")
		case e.ProtocolBinding != a2a.TransportProtocolJSONRPC && e.ProtocolBinding != a2a.TransportProtocolHTTPJSON:
			reasons = append(reasons, "the binding "+input.Quote(string(e.ProtocolBinding))+" is not JSONRPC or HTTP+JSON")
		case secret && server(e.URL) != server(home):
			reasons = append(reasons, fmt.Sprintf("%s is not the server of the card, %s, and would receive its secret", server(e.URL), server(home)))
		default:
			if err = permit(e.URL); err == nil {
				return e, nil
			}
			reasons = append(reasons, errs.From(err).Detail)
		}
	}
	return a2a.AgentInterface{}, errs.New(errs.InvalidRequest, "the agent card has no interface that comet can use: %s", strings.Join(reasons, "; "))
}

// server is the scheme and the host of an address, "" for none.
func server(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// HasSkill reports whether the card lists a skill.
func (c Card) HasSkill(id string) bool {
	for _, s := range c.Skills {
		if s.ID == id {
			return true
		}
	}
	return false
}

// FetchCard reads the card at an address with the entity tag of a known card, "" for none. raw is nil if the known card is
// still current. The errors are those of requests.
func FetchCard(ctx context.Context, o *Options, address, etag string) (raw []byte, newTag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, CardTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, "", errs.New(errs.InvalidRequest, "%s is not the address of a card", input.Quote(address))
	}
	req.Header.Set("Accept", "application/json")
	if etag != "" {
		req.Header.Set("If-None-Match", etag)
	}
	resp, err := o.send(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusNotModified && etag != "" {
		return nil, etag, nil
	}
	if err := checkStatus(resp); err != nil {
		return nil, "", err
	}
	raw, err = readAll(resp, MaxCard)
	if newTag = resp.Header.Get("ETag"); len(newTag) > wire.MaxID {
		newTag = ""
	}
	return raw, newTag, err
}
