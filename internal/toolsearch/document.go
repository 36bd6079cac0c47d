package toolsearch

import (
	"encoding/json"
	"slices"
	"strings"
)

// field is a part of a tool that is searched.
type field uint8

const (
	inName field = iota
	inServer
	inTitle
	inSummary // the first sentence of the description
	inDescription
	inParameters
	inParameterTexts
	fields
)

// emphasis is what a word counts in each field, and evenness how much is taken off in a
// field that is longer than others, 0 for nothing. Names are chosen with care and are
// short; descriptions of parameters mention everything.
func emphasis() (weight, evenness [fields]float32) {
	weight = [fields]float32{inName: 5.5, inServer: 2.5, inTitle: 1.4, inSummary: 1.6, inDescription: 0.6, inParameters: 0.3, inParameterTexts: 0.3}
	evenness = [fields]float32{inName: 0.4, inServer: 0, inTitle: 0.4, inSummary: 0.4, inDescription: 0.6, inParameters: 0.65, inParameterTexts: 0.7}
	return weight, evenness
}

const (
	// maxParameters is how many parameters of a tool are read, and maxDepth how deep.
	maxParameters = 200
	maxDepth      = 4
	// maxWords is how many words of one field count.
	maxWords = 400
)

// document is a tool with the terms of its fields.
type document struct {
	id, server, description string
	text, digest            string // what a vector is made of, and under what it is kept
	length                  [fields]float32
	terms                   map[string]*[fields]uint16
	words                   map[string]string // as they are written, folded, and their stems
	plurals                 map[string]bool   // terms of the name
	places                  map[string]int    // of terms in the first sentence
	deprecated, destroys    bool
	actions                 actions
}

func newDocument(w *words, t *Tool, of *shared) *document {
	d := &document{id: t.ID, server: t.Server, description: t.Description, terms: map[string]*[fields]uint16{}, words: map[string]string{}, plurals: map[string]bool{}, places: map[string]int{}}
	summary, rest := of.own(t.Description)
	parameters, texts := schemaWords(t.InputSchema)
	all := [fields][]string{
		inTitle: split(t.Title), inSummary: split(summary), inDescription: split(rest),
		inParameters: split(parameters), inParameterTexts: split(texts), inServer: split(t.Server),
	}
	for _, word := range split(t.Name) {
		if of.prefix[word] { // it says no more than the server's name
			all[inServer] = append(all[inServer], word)
			continue
		}
		all[inName] = append(all[inName], word)
	}
	d.actions = w.does(all[inName])
	all[inName] = append(all[inName], split(strings.Join(t.Keywords, " "))...)
	l := w.languageOf(slices.Concat(all[inSummary], all[inDescription], all[inTitle]))
	for f, list := range all {
		d.add(w, field(f), list, l)
	}
	d.deprecated = d.terms["deprec"] != nil
	d.destroys = slices.ContainsFunc(split(t.Name), func(word string) bool { return w.destroyers[fold(word)] && !of.prefix[word] })
	return d
}

// textOf is what a vector of a tool is made of.
func textOf(t *Tool) string {
	parts := []string{t.Server, strings.Join(split(t.Name), " "), t.Title, t.Description}
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ". ")
	return strings.ToValidUTF8(text[:min(len(text), maxEmbedded)], "")
}

// add counts words of a field. They are stemmed in the language that the tool is described
// in, or in both where that cannot be seen: "fil" is no file.
func (d *document) add(w *words, f field, list []string, l language) {
	for i, word := range list[:min(len(list), maxWords)] {
		if w.stops[anglais][word] && (f != inName || len(list) > 1) {
			continue
		}
		d.length[f]++
		one := stem(word, anglais)
		d.words[fold(word)] = one
		if f == inName && plural(word) {
			d.plurals[one] = true
		}
		if _, twice := d.places[one]; f == inSummary && !twice {
			d.places[one] = i
		}
		if l != francais {
			d.count(one, f)
		}
		if l != anglais {
			d.count(french(word), f)
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

// schema is what is read of a JSON Schema.
type schema struct {
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
	Items       *schema            `json:"items"`
	Enum        []any              `json:"enum"`
}

// schemaWords returns the names of the parameters of a tool, and what is said of them.
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
	keys := make([]string, 0, len(s.Properties))
	for k := range s.Properties {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
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
