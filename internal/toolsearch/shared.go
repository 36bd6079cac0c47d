package toolsearch

import "strings"

const (
	// enough is how many tools a server has of which something can be said to be common.
	enough = 3
	// often is the share of a server's tools that have a sentence which says nothing of any
	// of them.
	often = 3
)

// shared is what the tools of one server have in common, and so tells none of them from
// another: slack_ before all names, "Only works within allowed directories." behind most
// descriptions.
type shared struct {
	prefix    map[string]bool // words
	sentences map[string]bool
}

func sharedBy(tools []Tool) *shared {
	s := &shared{prefix: map[string]bool{}, sentences: map[string]bool{}}
	if len(tools) < enough {
		return s
	}
	for _, word := range prefixOf(tools) {
		s.prefix[word] = true
	}
	count := map[string]int{}
	for i := range tools {
		mine := map[string]bool{}
		for _, one := range sentences(tools[i].Description) {
			if !mine[one] {
				mine[one] = true
				count[one]++
			}
		}
	}
	for one, n := range count {
		if n >= enough && n*often >= len(tools) {
			s.sentences[one] = true
		}
	}
	return s
}

// own returns what a description says of its tool alone: the first sentence, and the rest.
func (s *shared) own(description string) (summary, rest string) {
	var kept []string
	for _, one := range sentences(description) {
		if !s.sentences[one] {
			kept = append(kept, one)
		}
	}
	if len(kept) == 0 {
		return "", ""
	}
	return kept[0], strings.Join(kept[1:], " ")
}

// sentences cuts a text at the ends of sentences and lines.
func sentences(text string) []string {
	text = text[:min(len(text), maxText)]
	var out []string
	from := 0
	end := func(to int) {
		if one := strings.TrimSpace(text[from:to]); one != "" {
			out = append(out, one)
		}
		from = to
	}
	for i := range len(text) {
		switch {
		case text[i] == '\n':
			end(i)
		case strings.IndexByte(".!?;", text[i]) >= 0 && i+1 < len(text) && text[i+1] == ' ':
			end(i + 1)
		}
	}
	end(len(text))
	return out
}

// prefixOf returns the words that the names of all tools begin with.
func prefixOf(tools []Tool) []string {
	common := split(tools[0].Name)
	for i := range tools {
		name := split(tools[i].Name)
		n := 0
		for n < len(common) && n < len(name) && common[n] == name[n] {
			n++
		}
		common = common[:n]
	}
	return common
}
