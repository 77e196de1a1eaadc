/** The contents of credentials.json, for scripts and `npm run admin`. */
export interface Credentials {
  base_url: string
  access_token: string
  organization_slug: string
  /** Port of the gateway to all databases. */
  database_port: number
  /** Address of the database host's API and of SQL over HTTP. */
  host_url: string
  /** Address of the bucket's S3 API. */
  s3_url: string
}

export function stepLine(name: string, ms: number): string {
  return `  ${name.padEnd(12)} ${(ms / 1000).toFixed(1)} s`
}

/**
 * The first text that a newcomer reads. The curl lines work when pasted in this order; the last one waits for the database. The
 * token is shown only once, because the output of a start ends up in logs.
 */
export function readyText(
  { base_url, access_token, organization_slug }: Credentials,
  { file, isNew }: { file: string; isNew: boolean },
): string {
  const bearer = `-H "authorization: Bearer $(node -p "require('${file}').access_token")"`
  const json = `-H 'content-type: application/json'`
  const project = JSON.stringify({ name: 'first', organization_slug, db_pass: 'change-me-soon', region: 'us-east-1' })
  const query = JSON.stringify({ query: 'select version()' })
  const newestRef = `$(curl -s ${base_url}/v1/projects ${bearer} | grep -o '"ref":"[a-z]*"' | head -n 1 | cut -d '"' -f 4)`
  return `
Pilothouse is ready.

  base URL      ${base_url}
  access token  ${isNew ? access_token : 'in the file below'}
  organization  ${organization_slug}
  read          ${base_url}/docs (pages and API reference)
  saved in      ${file}

Try it:

curl -s ${base_url}/v1/organizations ${bearer}

curl -s -X POST ${base_url}/v1/projects ${bearer} ${json} -d '${project}'

curl -sf --retry 20 --retry-delay 1 --retry-all-errors ${base_url}/v1/projects/${newestRef}/database/query ${bearer} ${json} -d '${query}'

Ctrl-C stops everything; the data stays.
`
}
