import * as z from 'zod'
import { del, empty, get, patch, post } from '../../kernel/route.ts'
import { listSnippets } from './list-snippets.ts'
import { getSnippet } from './read-snippet.ts'
import { CreateSnippet, Snippet, SnippetList, SnippetListQuery, UpdateSnippet } from './schema.ts'
import { createSnippet, deleteSnippet, updateSnippet } from './service.ts'

const params = { id: z.uuid().toLowerCase() }
const CHANGE_ERRORS = ['not_found.snippet', 'not_found.project', 'forbidden.permission_denied'] as const

export const snippetRoutes = [
  get('/v1/snippets', {
    id: 'v1-list-all-snippets',
    summary: 'List SQL snippets',
    scope: 'database:read',
    query: SnippetListQuery,
    returns: SnippetList,
    errors: ['not_found.project'],
    handle: ({ ctx, query }) => listSnippets(ctx, query),
  }),

  post('/v1/snippets', {
    id: 'v1-create-a-snippet',
    summary: 'Create an SQL snippet',
    scope: 'database:write',
    body: CreateSnippet,
    returns: Snippet,
    status: 201,
    errors: ['not_found.project', 'forbidden.permission_denied', 'unprocessable.too_many_snippets'],
    handle: ({ ctx, body }) => createSnippet(ctx, body),
  }),

  get('/v1/snippets/{id}', {
    id: 'v1-get-a-snippet',
    summary: 'Get an SQL snippet',
    scope: 'database:read',
    params,
    returns: Snippet,
    errors: ['not_found.snippet'],
    handle: ({ ctx, params }) => getSnippet(ctx, params.id),
  }),

  patch('/v1/snippets/{id}', {
    id: 'v1-update-a-snippet',
    summary: 'Update an SQL snippet or its favorite mark',
    description:
      'Omitted fields stay unchanged. Everyone who sees the snippet and may write the database can set `favorite`; other fields require its owner or an administrator.',
    scope: 'database:write',
    params,
    body: UpdateSnippet,
    returns: Snippet,
    errors: CHANGE_ERRORS,
    handle: ({ ctx, params, body }) => updateSnippet(ctx, params.id, body),
  }),

  del('/v1/snippets/{id}', {
    id: 'v1-delete-a-snippet',
    summary: 'Delete an SQL snippet',
    scope: 'database:write',
    params,
    returns: empty,
    errors: CHANGE_ERRORS,
    handle: ({ ctx, params }) => deleteSnippet(ctx, params.id),
  }),
]
