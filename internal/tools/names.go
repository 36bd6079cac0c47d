package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxListedName is the longest listed name, which is the limit of the strictest common clients.
const maxListedName = 64

// NameStyle is the form of listed names. Tools can be called by every form.
type NameStyle string

// Name styles.
const (
	// NamesPortable lists serverId__toolName in letters, digits, _ and -.
	NamesPortable NameStyle = "portable"
	// NamesDocumented lists serverId:toolName, the form of AgentCards.
	NamesDocumented NameStyle = "documented"
)

// Resources and prompts of upstreams are forwarded unchanged. Policies apply to them as to tools:
// the resource file:///a of the server fs is the tool fs:resource:file:///a, the prompt p is
// fs:prompt:p, and both have the class read.
const (
	resourcePrefix = "resource:"
	promptPrefix   = "prompt:"
)

// toolID returns the id of a tool: serverId:toolName.
func toolID(server, tool string) string { return server + ":" + tool }

// splitID splits the id of a tool; a server's id has no colon.
func splitID(id string) (server, tool string, ok bool) { return strings.Cut(id, ":") }

// portable returns the portable name of a tool. In a name that is too long or has other
// characters, these are replaced and a digest is appended, so that names stay unique.
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
	tail := "_" + hexDigest([]byte(toolID(server, tool)))[:8]
	return clean[:min(len(clean), maxListedName-len(tail))] + tail
}

func (s NameStyle) listed(server, tool string) string {
	if s == NamesDocumented {
		return toolID(server, tool)
	}
	return portable(server, tool)
}

// hexDigest returns the SHA-256 of a text in hexadecimal digits.
func hexDigest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// MaxToolName is the maximum length of the name of an upstream's tool, in bytes.
const MaxToolName = 128
