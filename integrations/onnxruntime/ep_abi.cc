// Compares ep_abi.h with a header of ONNX Runtime that has the plugin interface, where one is installed.
#include "octavo/integrations/onnxruntime/ep_abi.h"

#if ORT_API_VERSION >= 23
namespace octavo::integrations::onnxruntime::abi {

#define SAME_PLACE(member) static_assert(kTailAt + offsetof(Tail, member) == offsetof(OrtApi, member))
SAME_PLACE(GetValueInfoName);
SAME_PLACE(GetValueInfoTypeInfo);
SAME_PLACE(GetModelEditorApi);
SAME_PLACE(GetKeyValuePairs);
SAME_PLACE(ReleaseKeyValuePairs);
SAME_PLACE(HardwareDevice_Type);
SAME_PLACE(GetEpApi);
SAME_PLACE(ValueInfo_GetInitializerValue);
SAME_PLACE(ValueInfo_IsGraphOutput);
SAME_PLACE(ValueInfo_IsConstantInitializer);
SAME_PLACE(ValueInfo_IsFromOuterScope);
SAME_PLACE(Graph_GetModelPath);
SAME_PLACE(Graph_GetOnnxIRVersion);
SAME_PLACE(Graph_GetOperatorSets);
SAME_PLACE(Graph_GetNodes);
SAME_PLACE(Graph_GetParentNode);
SAME_PLACE(Node_GetName);
SAME_PLACE(Node_GetInputs);
SAME_PLACE(Node_GetImplicitInputs);
SAME_PLACE(Node_GetAttributes);
SAME_PLACE(OpAttr_GetTensorAttributeAsOrtValue);
SAME_PLACE(OpAttr_GetType);
SAME_PLACE(OpAttr_GetName);
SAME_PLACE(Node_GetSubgraphs);
SAME_PLACE(GetSessionOptionsConfigEntries);
#undef SAME_PLACE

static_assert(kTensor == static_cast<int>(ORT_OP_ATTR_TENSOR) && kGraph == static_cast<int>(ORT_OP_ATTR_GRAPH));
static_assert(offsetof(ModelEditorApi, CreateNode) == offsetof(OrtModelEditorApi, CreateNode));
static_assert(offsetof(EpApi, AddNodesToFuse) == offsetof(OrtEpApi, EpGraphSupportInfo_AddNodesToFuse));
static_assert(offsetof(ComputeInfo, ReleaseState) == offsetof(OrtNodeComputeInfo, ReleaseState));
static_assert(offsetof(Ep, ReleaseNodeComputeInfos) == offsetof(OrtEp, ReleaseNodeComputeInfos));
static_assert(offsetof(Ep, optional) + 7 * sizeof(Unused) == offsetof(OrtEp, GetCompiledModelCompatibilityInfo));
#if ORT_API_VERSION >= 25
static_assert(offsetof(Ep, CreateProfiler) == offsetof(OrtEp, CreateProfiler));
static_assert(kProfilingAt == offsetof(OrtEpApi, CreateProfilingEvent));
static_assert(kProfilingAt + offsetof(ProfilingApi, ReleaseProfilingEvent) ==
              offsetof(OrtEpApi, ReleaseProfilingEvent));
static_assert(kProfilingAt + offsetof(ProfilingApi, ProfilingEventsContainer_AddEvents) ==
              offsetof(OrtEpApi, ProfilingEventsContainer_AddEvents));
static_assert(kKernelEvent == static_cast<int>(OrtProfilingEventCategory_KERNEL));
static_assert(offsetof(Profiler, StartProfiling) == offsetof(OrtEpProfilerImpl, StartProfiling));
static_assert(offsetof(Profiler, StopEvent) == offsetof(OrtEpProfilerImpl, StopEvent));
static_assert(offsetof(Profiler, EndProfiling) == offsetof(OrtEpProfilerImpl, EndProfiling));
#endif
static_assert(offsetof(Factory, CreateEp) == offsetof(OrtEpFactory, CreateEp));
static_assert(offsetof(Factory, create_sync_stream) == offsetof(OrtEpFactory, CreateSyncStreamForDevice));

}  // namespace octavo::integrations::onnxruntime::abi
#endif
