package sandbox

import (
	"slices"
	"strings"
)

// server is the names under which code finds a server and its tools.
type server struct {
	ID    string            `json:"id"`
	Names []string          `json:"names"` // its id, then identifiers
	Tools map[string]string `json:"tools"` // name in code → the tool's name
}

// serversOf returns every server and tool with its names: the exact name, and camelCase and
// snake_case unless another server or tool has that name. Exact names take precedence over
// identifiers, earlier tools over later ones.
func serversOf(tools []Tool) []server {
	all := []server{}
	at := map[string]int{}
	taken := map[string]bool{}
	for _, t := range tools {
		i, known := at[t.Server]
		if !known {
			i = len(all)
			at[t.Server] = i
			taken[t.Server] = true
			all = append(all, server{ID: t.Server, Names: []string{t.Server}, Tools: map[string]string{}})
		}
		all[i].Tools[t.Name] = t.Name
	}
	for i := range all {
		for _, name := range identifiersOf(all[i].ID) {
			if !taken[name] {
				taken[name] = true
				all[i].Names = append(all[i].Names, name)
			}
		}
	}
	for _, t := range tools {
		names := all[at[t.Server]].Tools
		for _, name := range identifiersOf(t.Name) {
			if _, other := names[name]; !other {
				names[name] = t.Name
			}
		}
	}
	return all
}

// identifiersOf returns a name in camelCase and in snake_case, where these are identifiers:
// "list-commits" is listCommits and list_commits.
func identifiersOf(name string) []string {
	parts := splitName(name)
	if len(parts) == 0 {
		return nil
	}
	camel := strings.ToLower(parts[0])
	for _, p := range parts[1:] {
		camel += strings.ToUpper(p[:1]) + strings.ToLower(p[1:])
	}
	snake := strings.ToLower(strings.Join(parts, "_"))
	all := []string{camel, snake}
	all = slices.DeleteFunc(all, func(s string) bool { return !isIdentifier(s) })
	slices.Sort(all)
	return slices.Compact(all)
}

// splitName returns the words of a name, split at separators and capitals.
func splitName(name string) []string {
	var all []string
	for _, word := range strings.FieldsFunc(name, func(r rune) bool {
		return r != '$' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		begin := 0
		for i := 1; i < len(word); i++ {
			if isUpper(word[i]) && (!isUpper(word[i-1]) || i+1 < len(word) && isLower(word[i+1])) {
				all = append(all, word[begin:i])
				begin = i
			}
		}
		all = append(all, word[begin:])
	}
	return all
}

func isUpper(b byte) bool { return b >= 'A' && b <= 'Z' }

func isLower(b byte) bool { return b >= 'a' && b <= 'z' }

// isIdentifier reports whether a name of letters, digits, _ and $ needs no quotes in JavaScript.
func isIdentifier(s string) bool { return s != "" && (s[0] < '0' || s[0] > '9') }
