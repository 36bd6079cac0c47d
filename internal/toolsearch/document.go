package toolsearch

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Tool is a tool as its server describes it.
type Tool struct {
	// ID is serverId:toolName, of at most 256 bytes.
	ID string
	// Server and Name are its two halves.
	Server, Name string
	Title        string
	Description  string
	// InputSchema is a JSON Schema; the names and descriptions of its parameters are indexed.
	// Invalid JSON is ignored.
	InputSchema json.RawMessage
}

type field uint8

const (
	nameField field = iota
	serverField
	titleField
	summaryField // the first sentence of the description
	descriptionField
	parameterField
	parameterTextField
	fields
)

const (
	// maxParameters is how many parameters of a tool are indexed, and maxDepth how deep.
	maxParameters = 200
	maxDepth      = 4
	// maxFieldWords is how many words of one field are indexed.
	maxFieldWords = 400
)

type document struct {
	id, server, description string
	embedded, digest        string // the text of its vector, and the key under which that is stored
	length                  [fields]float32
	terms                   map[string]*[fields]uint16
	words                   map[string]string // without accents → stem
	plurals                 map[string]bool   // terms of the name
	deprecated              bool
	action                  action
}

func newDocument(v *vocabulary, t *Tool) *document {
	d := &document{id: t.ID, server: t.Server, description: t.Description, terms: map[string]*[fields]uint16{}, words: map[string]string{}, plurals: map[string]bool{}}
	summary, rest := firstSentence(t.Description)
	parameters, texts := schemaWords(t.InputSchema)
	name := tokenize(t.Name)
	d.action = v.actionOfName(name)
	all := [fields][]string{
		nameField: name, serverField: tokenize(t.Server), titleField: tokenize(t.Title),
		summaryField: tokenize(summary), descriptionField: tokenize(rest), parameterField: tokenize(parameters), parameterTextField: tokenize(texts),
	}
	l := v.languageOf(slices.Concat(all[summaryField], all[descriptionField], all[titleField]))
	for f, words := range all {
		d.add(v, field(f), words, l)
	}
	d.deprecated = d.terms["deprec"] != nil
	return d
}

// firstSentence splits a description at the end of its first sentence or line.
func firstSentence(text string) (summary, rest string) {
	text = strings.TrimSpace(text)
	for i := range len(text) {
		if text[i] == '\n' || strings.IndexByte(".!?;", text[i]) >= 0 && i+1 < len(text) && text[i+1] == ' ' {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// add counts the words of a field, stemmed in the description's language, or in both if unknown.
func (d *document) add(v *vocabulary, f field, words []string, l language) {
	for _, word := range words[:min(len(words), maxFieldWords)] {
		if v.stopWords[inEnglish][word] && (f != nameField || len(words) > 1) {
			continue
		}
		d.length[f]++
		en := stem(word, inEnglish)
		d.words[withoutAccents(word)] = en
		if f == nameField && isPlural(word) {
			d.plurals[en] = true
		}
		if l != inFrench {
			d.count(en, f)
		}
		if l != inEnglish {
			d.count(frenchTerm(word), f)
		}
	}
}

func (d *document) count(term string, f field) {
	counts := d.terms[term]
	if counts == nil {
		counts = new([fields]uint16)
		d.terms[term] = counts
	}
	counts[f]++
}

// schema is the part of a JSON Schema that is indexed.
type schema struct {
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Enum        []any              `json:"enum"`
}

// schemaWords returns the names of a tool's parameters, and their descriptions and values.
func schemaWords(raw json.RawMessage) (names, texts string) {
	var s schema
	if len(raw) == 0 || json.Unmarshal(raw, &s) != nil {
		return "", ""
	}
	var n, t strings.Builder
	left := maxParameters
	s.walk(maxDepth, &left, &n, &t)
	return n.String(), t.String()
}

func (s *schema) walk(depth int, left *int, names, texts *strings.Builder) {
	if s == nil || depth == 0 {
		return
	}
	for _, k := range slices.Sorted(maps.Keys(s.Properties)) {
		if *left--; *left < 0 {
			return
		}
		names.WriteString(k + " ")
		if p := s.Properties[k]; p != nil {
			texts.WriteString(p.Description + " ")
			p.walk(depth-1, left, names, texts)
		}
	}
	s.Items.walk(depth-1, left, names, texts)
	for _, v := range s.Enum[:min(len(s.Enum), maxParameters)] {
		if word, ok := v.(string); ok {
			texts.WriteString(word + " ")
		}
	}
}
