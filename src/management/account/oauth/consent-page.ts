import { html } from 'hono/html'
import type { Answer } from '../../kernel/route.ts'
import type { AuthorizationRequest } from './authorization-request.ts'
import { pagePolicy } from './page-policy.ts'
import { targetOf } from './redirect-uri.ts'

/** A problem shown to the user, with the organizations to choose from if a choice is missing. */
export interface Problem {
  text: string
  organizations?: readonly { slug: string; name: string }[]
}

const STYLE = `body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem}
label{display:block;margin:1rem 0}input,select{display:block;width:100%;box-sizing:border-box;font:inherit;padding:.4rem}
button{font:inherit;padding:.4rem 1.2rem;margin-right:.5rem}[role=alert]{border-left:4px solid #b00;padding:.5rem 1rem}`

/** Renders the consent page. Its form posts to the page's own URL, so the user approves exactly what it shows. */
export async function consentPage(request: AuthorizationRequest, problem?: Problem): Promise<Answer> {
  const { app, redirectUri, nonce, scopes, organizationSlug, claim } = request
  const title = claim ? `Claim ${claim.project.name}?` : `Authorize ${app.name}?`
  const place =
    organizationSlug === undefined
      ? 'one of your organizations'
      : html`the organization <strong>${organizationSlug}</strong>`
  const styleNonce = crypto.randomUUID()
  const body = await html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${title}</title>
<style nonce="${styleNonce}">${STYLE}</style>
</head>
<body>
<h1>${title}</h1>
${claim && claimText(claim, place)}
<p><strong>${app.name}</strong>, published by ${app.publisher}, requests access on your behalf ${claim ? 'there' : html`in ${place}`}.
It can never do more than you can. It requests:</p>
<ul>${nonce !== undefined && html`<li>your identity: a signed token with the id of your account</li>`}${scopes.map((scope) => html`<li><code>${scope}</code></li>`)}</ul>
<p>You will be sent to <code>${targetOf(redirectUri)}</code>.</p>
${problem && html`<p role="alert">${problem.text}</p>`}
<form method="post">
${organizationSlug === undefined && organizationField(problem)}
<label>Your personal access token <input type="password" name="token" autocomplete="off" spellcheck="false"></label>
<button name="decision" value="approve">${claim ? 'Claim and approve' : 'Approve'}</button>
<button name="decision" value="deny">Deny</button>
</form>
<p>The token is only used to identify you: ${app.name} does not receive it.</p>
</body>
</html>
`
  const headers = { 'content-security-policy': pagePolicy('style-src', styleNonce) }
  return { status: problem ? 422 : 200, headers, body: String(body) }
}

type Claim = NonNullable<AuthorizationRequest['claim']>

const claimText = (
  { project, source, reach }: Claim,
  place: unknown,
) => html`<p>The project <strong>${project.name}</strong>
(<code>${project.ref}</code>) of ${source.name} (${source.slug}) moves to ${place}, with its branches and all their data,
and ${source.name} loses access to it. Its API keys, passwords and secrets do not change: anyone who knows them can use them until you change
them.</p>
<ul>${reach.map((text) => html`<li>${text}.</li>`)}</ul>`

function organizationField(problem: Problem | undefined) {
  const options = problem?.organizations?.map(
    ({ slug, name }) => html`<option value="${slug}">${name} (${slug})</option>`,
  )
  return html`<label>Organization
${options ? html`<select name="organization">${options}</select>` : html`<input name="organization" placeholder="its slug; empty if you have only one">`}</label>`
}
