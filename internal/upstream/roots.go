package upstream

import (
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Roots are deprecated since 2026-07-28, and asked for by servers as common as the one
// for files. All that knows of them is in this file.

// offerRoots says that there are roots where there are.
func (s *session) offerRoots(c *mcp.ClientCapabilities) {
	if len(s.launch.Roots) > 0 {
		c.RootsV2 = &mcp.RootCapabilities{}
	}
}

// addRoots has the client answer requests for roots.
func (s *session) addRoots(c *mcp.Client) { c.AddRoots(s.roots()...) }

// answerRoots answers a question for roots, and no other.
func (s *session) answerRoots(q mcp.InputRequest) (answer mcp.InputResponse, ok bool) {
	if _, ok := q.(*mcp.ListRootsParams); !ok {
		return nil, false
	}
	return &mcp.ListRootsResult{Roots: s.roots()}, true
}

func (s *session) roots() []*mcp.Root {
	roots := make([]*mcp.Root, len(s.launch.Roots))
	for i, path := range s.launch.Roots {
		roots[i] = &mcp.Root{URI: (&url.URL{Scheme: "file", Path: path}).String()}
	}
	return roots
}
