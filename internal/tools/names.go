package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The servers that comet is itself.
const (
	// agentCardsServer has the tools of the document (AgentCards, “Meta-Tools”).
	agentCardsServer = "agentcards"
	// cometServer has those that lead to agents.
	cometServer = "comet"
)

// maxListedName is how long a listed name may be: what the strictest of the common clients take.
const maxListedName = 64

// NameStyle is how tools are listed. Every form can be called, whichever is listed.
type NameStyle string

// The styles of names.
const (
	// NamesPortable lists serverId__toolName, in letters, digits, _ and -.
	NamesPortable NameStyle = "portable"
	// NamesDocumented lists serverId:toolName, as the document writes them.
	NamesDocumented NameStyle = "documented"
)

// toolID is what a tool is called inside: serverId:toolName.
func toolID(server, tool string) string { return server + ":" + tool }

// splitID cuts the id of a tool. The server's id has no colon.
func splitID(id string) (server, tool string, ok bool) { return strings.Cut(id, ":") }

// portable is the listed name of a tool. One with characters that clients refuse, or too
// long, gets them replaced and ends in a digest, so that two never meet.
func portable(server, tool string) string {
	name := server + "__" + tool
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if clean == name && len(name) <= maxListedName {
		return name
	}
	sum := sha256.Sum256([]byte(toolID(server, tool)))
	tail := "_" + hex.EncodeToString(sum[:4])
	return clean[:min(len(clean), maxListedName-len(tail))] + tail
}

// listed is the name a tool is listed with.
func (s NameStyle) listed(server, tool string) string {
	if s == NamesDocumented {
		return toolID(server, tool)
	}
	return portable(server, tool)
}

// splitListed cuts a listed name. The server's id has no underscore.
func splitListed(name string) (server, tool string, ok bool) { return strings.Cut(name, "__") }
