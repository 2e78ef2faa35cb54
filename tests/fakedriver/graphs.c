// Graphs of the stand-in: built, read, made executable and launched. Included by driver.c.

static CUresult added(graph *in, const CUgraphNode *before, size_t count, CUgraphNodeType type, node **out) {
    REFUSE_IF(!is(in, GRAPH), INVALID_VALUE);
    for (size_t i = 0; i < count; i++)
        REFUSE_IF(!is(before[i], NODE) || ((node *)before[i])->graph != in, INVALID_VALUE);
    node *one = made(NODE, sizeof *one);
    one->type = type, one->graph = in, one->place = in->nodes;
    in->node = grown(in->node, in->nodes, sizeof(node *));
    in->node[in->nodes++] = one;
    for (size_t i = 0; i < count; i++) {
        in->edge = grown(in->edge, in->edges, sizeof(edge));
        in->edge[in->edges++] = (edge){((node *)before[i])->place, one->place, {0}};
    }
    *out = one;
    return CUDA_SUCCESS;
}
#define ADD(type)                                                                             \
    node *one;                                                                                \
    CUresult refused = added((void *)handle, before, count, CU_GRAPH_NODE_TYPE_##type, &one); \
    if (refused) return refused;                                                              \
    *out = (void *)one

static void own_parameters(node *one) {  // a copy, as the driver keeps it
    const code *code = ((function *)one->kernel.func)->code;
    one->bytes = packed(code, one->kernel.kernelParams);
    void **places = calloc(code->count + 1, sizeof(void *));
    for (int i = 0; i < code->count; i++) places[i] = one->bytes + code->offset[i];
    one->kernel.kernelParams = places;
}
static graph *copied(const graph *from) {
    graph *to = made(GRAPH, sizeof *to);
    for (int i = 0; i < from->nodes; i++) {
        node *one;
        added(to, NULL, 0, from->node[i]->type, &one);
        int place = one->place;
        *one = *from->node[i], one->graph = to, one->place = place;
        if (one->type == CU_GRAPH_NODE_TYPE_KERNEL) own_parameters(one);
        if (one->child) one->child = copied(one->child);
    }
    to->edges = from->edges, to->edge = malloc(2 * (from->edges + 1) * sizeof(edge));
    memcpy(to->edge, from->edge, from->edges * sizeof(edge));
    return to;
}
static void destroyed(graph *one) {
    for (int i = 0; i < one->nodes; i++) {
        node *n = one->node[i];
        if (n->bytes) free(n->bytes), free(n->kernel.kernelParams);
        if (n->child) destroyed(n->child);
        n->kind = DEAD;
    }
    free(one->node), free(one->edge), one->kind = DEAD;
}
CUresult cuGraphCreate(CUgraph *out, unsigned flags) {
    ENTER;
    REFUSE_IF(flags, INVALID_VALUE);
    *out = made(GRAPH, sizeof(graph));
    return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph handle) {
    ENTER;
    REFUSE_IF(!is(handle, GRAPH), INVALID_VALUE);
    destroyed((void *)handle);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count,
                              const CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER;
    REFUSE_IF(!p || p->extra, INVALID_VALUE);
    CUfunction f = p->func ? p->func : is(p->kern, CODE) ? (void *)function_of((void *)p->kern) : NULL;
    NEED(f, FUNCTION);
    const code *code = ((function *)f)->code;
    REFUSE_IF(code->count && !p->kernelParams, INVALID_VALUE);
    CUresult bad = launchable(code, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ,
                              p->sharedMemBytes);
    if (bad) return bad;
    ADD(KERNEL);
    one->kernel = *p, one->kernel.func = f;
    one->attribute[CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP].memSyncDomainMap = (CUlaunchMemSyncDomainMap){0, 1};
    own_parameters(one);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *p, CUcontext in) {
    ENTER;
    REFUSE_IF(!is(in, CONTEXT), INVALID_CONTEXT);
    REFUSE_IF(!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4), INVALID_VALUE);
    REFUSE_IF(p->height > 1 && p->pitch < p->width * p->elementSize, INVALID_VALUE);
    ADD(MEMSET);
    one->set = *p;
    return CUDA_SUCCESS;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count,
                              const CUDA_MEMCPY3D *p, CUcontext in) {
    ENTER;
    REFUSE_IF(!is(in, CONTEXT), INVALID_CONTEXT);
    REFUSE_IF(!p || p->srcMemoryType < CU_MEMORYTYPE_HOST || p->dstMemoryType < CU_MEMORYTYPE_HOST, INVALID_VALUE);
    REFUSE_IF(p->Height * p->Depth > 1 && (p->srcPitch < p->WidthInBytes || p->dstPitch < p->WidthInBytes),
              INVALID_VALUE);
    REFUSE_IF(p->Depth > 1 && (p->srcHeight < p->Height || p->dstHeight < p->Height), INVALID_VALUE);
    ADD(MEMCPY);
    one->copy = *p;
    return CUDA_SUCCESS;
}
CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count) {
    ENTER;
    ADD(EMPTY);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph handle, const CUgraphNode *before, size_t count,
                                  CUgraph child) {
    ENTER;
    REFUSE_IF(!is(child, GRAPH), INVALID_VALUE);
    ADD(GRAPH);
    one->child = copied((void *)child);
    return CUDA_SUCCESS;
}
CUresult cuGraphAddDependencies(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                                const CUgraphEdgeData *data, size_t count) {
    ENTER;
    graph *in = (void *)handle;
    REFUSE_IF(!is(in, GRAPH) || (count && (!from || !to)), INVALID_VALUE);
    for (size_t i = 0; i < count; i++) {
        const node *a = (void *)from[i], *b = (void *)to[i];
        REFUSE_IF(!is(a, NODE) || !is(b, NODE) || a->graph != in || b->graph != in, INVALID_VALUE);
        for (int e = 0; e < in->edges; e++)
            REFUSE_IF(in->edge[e].from == a->place && in->edge[e].to == b->place, INVALID_VALUE);
        REFUSE_IF(data && data[i].type && a->type != CU_GRAPH_NODE_TYPE_KERNEL, INVALID_VALUE);
        in->edge = grown(in->edge, in->edges, sizeof(edge));
        in->edge[in->edges++] = (edge){a->place, b->place, data ? data[i] : (CUgraphEdgeData){0}};
    }
    return CUDA_SUCCESS;
}
CUresult cuGraphGetNodes(CUgraph handle, CUgraphNode *out, size_t *count) {
    ENTER;
    graph *in = (void *)handle;
    REFUSE_IF(!is(in, GRAPH) || !count, INVALID_VALUE);
    if (out)
        for (size_t i = 0; i < *count; i++) out[i] = i < (size_t)in->nodes ? (void *)in->node[i] : NULL;
    if (!out || *count > (size_t)in->nodes) *count = in->nodes;
    return CUDA_SUCCESS;
}
CUresult cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data, size_t *count) {
    ENTER;
    graph *in = (void *)handle;
    REFUSE_IF(!is(in, GRAPH) || !count || !from != !to, INVALID_VALUE);
    for (int e = 0; from && e < in->edges && (size_t)e < *count; e++) {
        from[e] = (void *)in->node[in->edge[e].from], to[e] = (void *)in->node[in->edge[e].to];
        REFUSE_IF(!data && in->edge[e].data.type, LOSSY_QUERY);
        if (data) data[e] = in->edge[e].data;
    }
    if (!from || *count > (size_t)in->edges) *count = in->edges;
    return CUDA_SUCCESS;
}
#define TYPED(t) \
    ENTER;       \
    REFUSE_IF(!is(handle, NODE) || ((node *)handle)->type != CU_GRAPH_NODE_TYPE_##t, INVALID_VALUE)
CUresult cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *out) {
    ENTER;
    REFUSE_IF(!is(handle, NODE), INVALID_VALUE);
    *out = ((node *)handle)->type;
    return CUDA_SUCCESS;
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *out) {
    TYPED(GRAPH);
    *out = (void *)((node *)handle)->child;
    return CUDA_SUCCESS;
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *out) {
    TYPED(MEMSET);
    *out = ((node *)handle)->set;
    return CUDA_SUCCESS;
}
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *out) {
    TYPED(MEMCPY);
    *out = ((node *)handle)->copy;
    return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *out) {
    TYPED(KERNEL);
    *out = ((node *)handle)->kernel;
    return CUDA_SUCCESS;
}

static const unsigned OF_NODES = 1 << CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW | 1 << CU_LAUNCH_ATTRIBUTE_COOPERATIVE |
                                 1 << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION |
                                 1 << CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE |
                                 1 << CU_LAUNCH_ATTRIBUTE_PRIORITY | 1 << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP |
                                 1 << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN;

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode handle, CUlaunchAttributeID which, CUlaunchAttributeValue *out) {
    TYPED(KERNEL);
    REFUSE_IF((int)which < 0 || which > 31 || !(OF_NODES >> which & 1), INVALID_VALUE);
    *out = ((node *)handle)->attribute[which];
    return CUDA_SUCCESS;
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode handle, CUlaunchAttributeID which,
                                       const CUlaunchAttributeValue *value) {
    TYPED(KERNEL);
    REFUSE_IF((int)which < 0 || which > 31 || !(OF_NODES >> which & 1) || !value, INVALID_VALUE);
    ((node *)handle)->attribute[which] = *value;
    return CUDA_SUCCESS;
}
static CUresult ordered(const graph *in, int *order) {
    int *waits = calloc(in->nodes + 1, sizeof(int)), done = 0;
    for (int e = 0; e < in->edges; e++) waits[in->edge[e].to]++;
    for (int i = 0; i < in->nodes; i++)
        if (!waits[i]) order[done++] = i;
    for (int i = 0; i < done; i++)
        for (int e = 0; e < in->edges; e++)
            if (in->edge[e].from == order[i] && !--waits[in->edge[e].to]) order[done++] = in->edge[e].to;
    free(waits);
    return done == in->nodes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
static CUresult checked(const graph *in) {
    for (int i = 0; i < in->nodes; i++) {
        const node *one = in->node[i];
        if (one->child) {
            CUresult bad = checked(one->child);
            if (bad) return bad;
        }
        if (one->type != CU_GRAPH_NODE_TYPE_KERNEL) continue;
        NEED(one->kernel.func, FUNCTION);
        const unsigned *cluster = (void *)&one->attribute[CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION].clusterDim;
        int most =
            ((function *)one->kernel.func)->code->value[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] ? 16 : 8;
        if (!cluster[0]) continue;
        REFUSE_IF(
            one->kernel.gridDimX % cluster[0] || one->kernel.gridDimY % cluster[1] || one->kernel.gridDimZ % cluster[2],
            INVALID_VALUE);
        REFUSE_IF(cluster[0] * cluster[1] * cluster[2] > (unsigned)most, INVALID_CLUSTER_SIZE);
    }
    return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph handle, unsigned long long flags) {
    ENTER;
    graph *in = (void *)handle;
    REFUSE_IF(!is(in, GRAPH) || flags, INVALID_VALUE);
    int *order = malloc((in->nodes + 1) * sizeof(int));
    CUresult bad = ordered(in, order);
    if (bad || (bad = checked(in))) return free(order), bad;
    exec *one = made(EXEC, sizeof *one);
    one->graph = copied(in), one->order = order;
    *out = (void *)one;
    return CUDA_SUCCESS;
}
CUresult cuGraphUpload(CUgraphExec handle, CUstream on) {
    ENTER;
    NEED(handle, EXEC);
    NEED(on, STREAM);
    return CUDA_SUCCESS;
}
CUresult cuGraphExecDestroy(CUgraphExec handle) {
    ENTER;
    REFUSE_IF(!is(handle, EXEC), INVALID_VALUE);
    exec *one = (void *)handle;
    destroyed(one->graph), free(one->order), one->kind = DEAD;
    return CUDA_SUCCESS;
}
static CUresult run_node(const node *one, stream *on);
static CUresult run_graph(const graph *in, const int *order, stream *on) {
    for (int i = 0; i < in->nodes && !on->hangs; i++) {
        CUresult bad = run_node(in->node[order[i]], on);
        if (bad) return broken = bad;
    }
    return CUDA_SUCCESS;
}
static CUresult run_node(const node *one, stream *on) {
    const CUDA_MEMSET_NODE_PARAMS *set = &one->set;
    const CUDA_MEMCPY3D *copy = &one->copy;
    if (one->type == CU_GRAPH_NODE_TYPE_KERNEL) return run(((function *)one->kernel.func)->code, one->bytes, on);
    if (one->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        int *order = malloc((one->child->nodes + 1) * sizeof(int));
        CUresult bad = ordered(one->child, order);
        if (!bad) bad = run_graph(one->child, order, on);
        return free(order), bad;
    }
    now_ns += 1000;
    if (one->type == CU_GRAPH_NODE_TYPE_MEMSET)
        for (size_t y = 0; y < set->height; y++) {
            uint64_t row = set->dst + y * set->pitch;
            REFUSE_IF(!there(row, set->width * set->elementSize), ILLEGAL_ADDRESS);
            for (size_t x = 0; x < set->width; x++)
                memcpy((char *)row + x * set->elementSize, &set->value, set->elementSize);
        }
    if (one->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        for (size_t z = 0; z < copy->Depth; z++)
            for (size_t y = 0; y < copy->Height; y++) {
                uint64_t from = copy->srcDevice + copy->srcXInBytes +
                                copy->srcPitch * (copy->srcY + y + copy->srcHeight * (copy->srcZ + z));
                uint64_t to = copy->dstDevice + copy->dstXInBytes +
                              copy->dstPitch * (copy->dstY + y + copy->dstHeight * (copy->dstZ + z));
                REFUSE_IF(!there(from, copy->WidthInBytes) || !there(to, copy->WidthInBytes), ILLEGAL_ADDRESS);
                memmove((void *)to, (void *)from, copy->WidthInBytes);
            }
    return CUDA_SUCCESS;
}
CUresult cuGraphLaunch(CUgraphExec handle, CUstream on) {
    ENTER;
    NEED(handle, EXEC);
    NEED(on, STREAM);
    run_graph(((exec *)handle)->graph, ((exec *)handle)->order, (void *)on);  // an error shows in the next call
    return CUDA_SUCCESS;
}
