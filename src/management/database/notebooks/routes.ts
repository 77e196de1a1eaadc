import * as z from 'zod'
import { del, empty, get, patch, post } from '../../kernel/route.ts'
import { listNotebooks } from './list-notebooks.ts'
import { getNotebook } from './read-notebook.ts'
import { CreateNotebook, Notebook, NotebookList, NotebookListQuery, UpdateNotebook } from './schema.ts'
import { createNotebook, deleteNotebook, updateNotebook } from './service.ts'

const params = { id: z.uuid().toLowerCase() }

export const notebookRoutes = [
  get('/v2/projects/{ref}/notebooks', {
    id: 'v2-list-notebooks',
    summary: 'List notebooks without their cells',
    scope: 'database:read',
    query: NotebookListQuery,
    returns: NotebookList,
    handle: ({ ctx, project, query }) => listNotebooks(ctx, project, query),
  }),

  post('/v2/projects/{ref}/notebooks', {
    id: 'v2-create-notebook',
    summary: 'Create a notebook',
    scope: 'database:write',
    body: CreateNotebook,
    returns: Notebook,
    status: 201,
    errors: ['notebook_cell_duplicate', 'unprocessable.too_many_notebooks'],
    handle: ({ ctx, project, body }) => createNotebook(ctx, project, body),
  }),

  get('/v2/projects/{ref}/notebooks/{id}', {
    id: 'v2-get-notebook',
    summary: 'Get a notebook',
    scope: 'database:read',
    params,
    returns: Notebook,
    errors: ['not_found.notebook'],
    handle: ({ ctx, project, params }) => getNotebook(ctx, project, params.id),
  }),

  patch('/v2/projects/{ref}/notebooks/{id}', {
    id: 'v2-update-notebook',
    summary: 'Update a notebook or its favorite mark',
    description:
      'Omitted attributes stay unchanged. `cells` replaces all cells; an id must be that of an existing cell.',
    scope: 'database:write',
    params,
    body: UpdateNotebook,
    returns: Notebook,
    errors: ['notebook_cell_duplicate', 'notebook_cell_unknown', 'not_found.notebook'],
    handle: ({ ctx, project, params, body }) => updateNotebook(ctx, project, params.id, body),
  }),

  del('/v2/projects/{ref}/notebooks/{id}', {
    id: 'v2-delete-notebook',
    summary: 'Delete a notebook',
    scope: 'database:write',
    params,
    returns: empty,
    status: 204,
    errors: ['not_found.notebook'],
    handle: ({ ctx, project, params }) => deleteNotebook(ctx, project, params.id),
  }),
]
