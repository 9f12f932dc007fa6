package notify

import "strings"

// slackText is text of a block. It is always plain: no mention and no format in
// it means anything to Slack.
type slackText struct {
	Type  string `json:"type"` // plain_text
	Text  string `json:"text"`
	Emoji bool   `json:"emoji"`
}

type slackBlock struct {
	Type     string      `json:"type"` // section, context
	Text     *slackText  `json:"text,omitempty"`
	Fields   []slackText `json:"fields,omitempty"`
	Elements []slackText `json:"elements,omitempty"`
}

type slackAttachment struct {
	Color    string       `json:"color"`
	Fallback string       `json:"fallback"`
	Blocks   []slackBlock `json:"blocks"`
}

// slackBody is a message of Slack's, for a webhook or for chat.postMessage.
type slackBody struct {
	Channel     string            `json:"channel,omitempty"`
	Username    string            `json:"username,omitempty"`
	Text        string            `json:"text"` // of the notification on a phone
	Markdown    bool              `json:"mrkdwn"`
	Parse       string            `json:"parse"`
	LinkNames   bool              `json:"link_names"`
	UnfurlLinks bool              `json:"unfurl_links"`
	UnfurlMedia bool              `json:"unfurl_media"`
	Attachments []slackAttachment `json:"attachments"`
}

// slackEscape takes their meaning from the three characters that have one
// wherever Slack reads text: <!channel> comes of them.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackPlain(text string, most int) slackText {
	return slackText{Type: "plain_text", Text: slackEscape.Replace(shown(text, most))}
}

func slackMessage(d Destination, e Event) slackBody {
	color := "good"
	if e.Severity == Error {
		color = "danger"
	}
	title := heading(e) + ": " + e.Reason
	head, text := slackPlain(title, factRunes), slackPlain(e.Message, textRunes)
	blocks := []slackBlock{{Type: "section", Text: &head}}
	if text.Text != "" {
		blocks = append(blocks, slackBlock{Type: "section", Text: &text})
	}
	if known := facts(e); len(known) > 0 {
		block := slackBlock{Type: "section"}
		for _, f := range known {
			block.Fields = append(block.Fields, slackPlain(f.name+": "+f.value, 2*factRunes))
		}
		blocks = append(blocks, block)
	}
	blocks = append(blocks, slackBlock{Type: "context", Elements: []slackText{slackPlain(e.ReportingController+" · "+e.Timestamp.UTC().Format("2006-01-02 15:04:05")+" UTC", factRunes)}})
	short := slackEscape.Replace(shown(title+": "+e.Message, textRunes/4))
	return slackBody{
		Channel: d.Channel, Username: d.Username, Text: short, Parse: "none",
		Attachments: []slackAttachment{{Color: color, Fallback: short, Blocks: blocks}},
	}
}
