package v5

import (
	"context"
	"encoding/base64"
	"strconv"

	lru "github.com/hashicorp/golang-lru/v2"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// The bounds of the pages that are kept: of so many texts, of those that have more than
// so many bytes. None is longer than maxFetched.
const (
	maxCachedTexts = 4
	minCachedBytes = 4 << 10
)

// pageCache keeps the long texts that are being fetched, so that one of thousands of pages is
// neither read from the database nor divided for each of them. It is safe for concurrent
// use.
type pageCache struct {
	cache *lru.Cache[string, pagedText]
}

func newPageCache() pageCache {
	all, _ := lru.New[string, pagedText](maxCachedTexts) // fails only for a size that is not positive
	return pageCache{all}
}

// pagedText are the pages of a text, which are Base64 unless DATA can say each.
type pagedText struct {
	pages []string
	plain bool
}

func paginate(text string) pagedText {
	p := pagedText{plain: fitsData(text)}
	if p.plain {
		p.pages = splitPages(text)
	} else {
		for rest := text; len(rest) > 0; rest = rest[min(pageBytes, len(rest)):] {
			p.pages = append(p.pages, rest[:min(pageBytes, len(rest))])
		}
	}
	p.pages = append(p.pages, []string{""}[min(len(p.pages), 1):]...) // an empty text has one page
	return p
}

// writePage writes one of them, from 1.
func (p pagedText) writePage(n int) (*wire.Writer, error) {
	if n > len(p.pages) {
		return nil, errorf(wire.E10, "", "page %d is behind the last one, %d", n, len(p.pages))
	}
	w := new(wire.Writer).Number("page", int64(n)).Number("of", int64(len(p.pages)))
	if p.plain {
		return w.Quoted("text", p.pages[n-1]), nil
	}
	return w.Add("enc", "base64").Add("text", base64.StdEncoding.EncodeToString([]byte(p.pages[n-1]))), nil
}

// cachedTaskField is stored for a text of which another page may be asked for soon.
func (p *Protocol) cachedTaskField(ctx context.Context, t models.Task, name wire.Task, field string) (pagedText, error) {
	// What a task was given never changes, the rest only until it has ended.
	keep := field == "params" || t.State.Ended()
	key := t.ID + "/" + strconv.FormatInt(t.Version, 10) + "/" + field
	if all, ok := p.pageCache.cache.Get(key); ok && keep {
		return all, nil
	}
	text, err := p.taskField(ctx, t, name, field)
	if err != nil {
		return pagedText{}, err
	}
	all := paginate(text)
	if keep && len(text) > minCachedBytes {
		p.pageCache.cache.Add(key, all)
	}
	return all, nil
}
